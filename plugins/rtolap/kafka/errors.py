"""librdkafka's errors in terms of the one tree."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from rtolap.base.errors import Forbidden, NotFound, Refused, RtolapError, TooLarge, Unauthorized, Unavailable
from rtolap.kafka.clusters import KafkaCluster

log = logging.getLogger(__name__)

GONE_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
GONE_OFFSET = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
WRONG_CREDENTIALS = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)
FORBIDDEN = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
# Kafka's own protocol calls these retriable; librdkafka does not say so of errors in answers. A leader epoch
# that is older or newer than the broker's means that the client or the broker has yet to hear of an election.
_PASSING = (
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.NOT_CONTROLLER,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.FETCH_SESSION_ID_NOT_FOUND,
    KafkaError.INVALID_FETCH_SESSION_EPOCH,
    KafkaError.LISTENER_NOT_FOUND,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.PREFERRED_LEADER_NOT_AVAILABLE,
    KafkaError.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.THROTTLING_QUOTA_EXCEEDED,
)


def translated(
    verb: str, topic: str, error: KafkaException | KafkaError, cluster: KafkaCluster
) -> RtolapError:
    """Translate an error of Kafka. NotFound: no such topic; Forbidden: the principal may not; Unauthorized:
    it is not who it says it is; Unavailable: worth a retry; Refused: it will not be taken as it is;
    TooLarge: a record is larger than its topic takes."""
    reason = error.args[0] if isinstance(error, KafkaException) else error
    if reason.code() in GONE_TOPIC:
        return NotFound(f"cannot {verb} {topic}: there is no such topic")
    if reason.code() in FORBIDDEN:
        return Forbidden(
            f"{cluster.principal} may not {verb} {topic}",
            found=reason.str(),
            action=f"grant it on Kafka cluster {cluster.name}",
        )
    if reason.code() in WRONG_CREDENTIALS:
        return unauthorized(cluster, reason)
    if reason.retriable() or reason.code() < 0 or reason.code() in _PASSING:
        return Unavailable(f"cannot {verb} {topic}", found=reason.str(), action="retry")
    if reason.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return TooLarge(
            f"Kafka refuses to {verb} {topic}: a record is larger than it takes",
            found=reason.str(),
            action="raise max.message.bytes of the topic",
        )
    return Refused(f"Kafka refuses to {verb} {topic}", found=reason.str())


def unauthorized(cluster: KafkaCluster, reason: KafkaError) -> Unauthorized:
    return Unauthorized(
        f"Kafka cluster {cluster.name} does not let {cluster.principal} in",
        found=cluster.redacted(reason.str()),
    )


def plain(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call the client; raise KafkaException for all that it raises.

    A fatal error that the client meets between callbacks comes as the cause of a SystemError.
    """
    try:
        return call(*arguments)
    except SystemError as error:
        for reason in (error.__cause__, error.__context__):
            if isinstance(reason, KafkaException):
                raise reason from error
        raise KafkaException(KafkaError(KafkaError._FAIL, str(error))) from error


def close_client(name: str, *calls: Callable[[], Any]) -> None:
    """Make the calls that end a client. Errors are logged: nothing can be done about them, and the caller has
    more to close.
    """
    for call in calls:
        try:
            plain(call)
        except (KafkaException, RuntimeError) as error:  # RuntimeError: it is closed already
            log.info("closing %s: %s", name, error)
