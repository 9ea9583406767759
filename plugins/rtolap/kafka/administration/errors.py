"""kafka-python's errors in terms of the one tree. The class of an error gives its meaning, never the text."""

from __future__ import annotations

from kafka import errors as kafka_errors

from rtolap.base.errors import Forbidden, NotFound, Refused, RtolapError, Unauthorized, Unavailable
from rtolap.kafka.clusters import KafkaCluster

NOT_THERE: tuple[type[Exception], ...] = (
    kafka_errors.UnknownTopicOrPartitionError,
    kafka_errors.ReplicaNotAvailableError,
    kafka_errors.LogDirNotFoundError,
    kafka_errors.NotLeaderForPartitionError,  # of a replica that is still to be made
)
_CREDENTIALS: tuple[type[Exception], ...] = (
    kafka_errors.SaslAuthenticationFailedError,
    kafka_errors.UnsupportedSaslMechanismError,
)
_OUTDATED: tuple[type[Exception], ...] = (kafka_errors.UnsupportedVersionError,)
_PASSING: tuple[type[Exception], ...] = (
    kafka_errors.RetriableError,
    kafka_errors.NotControllerError,
    kafka_errors.UnknownBrokerIdError,
    kafka_errors.RequestTimedOutError,
)


def is_passing(error: Exception) -> bool:
    """Tell whether the same request may do better in a moment, or at another broker."""
    return isinstance(error, (*_PASSING, OSError)) and not isinstance(error, NOT_THERE)


def translated(attempt: str, right: str, error: Exception, cluster: KafkaCluster) -> RtolapError:
    """Return the error of this house for one of the client. `attempt`: what was tried, as in "cannot …".
    `right`: what it needs, as in "Alter on the cluster"."""
    found = cluster.redacted(str(error) or type(error).__name__)
    if isinstance(error, kafka_errors.AuthorizationError):
        return Forbidden(
            f"{cluster.principal} may not {attempt} on Kafka cluster {cluster.name}",
            expected=f"the right {right}",
            action="grant it (kafka-acls --add)",
        )
    if isinstance(error, _CREDENTIALS):
        return Unauthorized(f"Kafka cluster {cluster.name} does not let {cluster.principal} in", found=found)
    if isinstance(error, NOT_THERE):
        return NotFound(f"cannot {attempt}: it is not there", found=found)
    if isinstance(error, _OUTDATED):
        return Refused(f"brokers of Kafka cluster {cluster.name} are too old to {attempt}", found=found)
    if is_passing(error):
        return Unavailable(f"cannot {attempt} on Kafka cluster {cluster.name}", found=found, action="retry")
    return Refused(f"Kafka refuses to {attempt}", found=found)


def of_code(
    code: int, message: str | None, attempt: str, right: str, cluster: KafkaCluster
) -> RtolapError | None:
    """Return None for code 0."""
    if code == 0:
        return None
    return translated(attempt, right, raised(code, message), cluster)


def raised(code: int, message: str | None) -> Exception:
    kind: type[Exception] = kafka_errors.for_code(code)
    return kind(message or kind.__name__)
