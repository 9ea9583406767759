"""librdkafka's errors in terms of the one tree."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from rtolap.base.errors import Forbidden, NotFound, Refused, RtolapError, TooLarge, Unauthorized, Unavailable
from rtolap.kafka.clusters import KafkaCluster

GONE_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
GONE_OFFSET = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
WRONG_CREDENTIALS = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)
FORBIDDEN = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
# librdkafka calls these final in answers to an administrator; they are over in a moment.
_PASSING = (KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION)


def translated(
    verb: str, topic: str, error: KafkaException | KafkaError, cluster: KafkaCluster
) -> RtolapError:
    """NotFound: no such topic; Forbidden: the principal may not; Unauthorized: it is not who it says it is;
    Unavailable: worth a retry; Refused: it will not be taken as it is; TooLarge: a record is
    larger than its topic takes."""
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
