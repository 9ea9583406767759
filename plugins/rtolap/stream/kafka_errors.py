"""librdkafka's errors in terms of the one tree."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from rtolap.base.errors import NotFound, Refused, RtolapError, Unavailable

GONE_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
GONE_OFFSET = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
# librdkafka calls these final in answers to an administrator; they are over in a moment.
_PASSING = (KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION)


def translated(verb: str, topic: str, error: KafkaException | KafkaError) -> RtolapError:
    """NotFound: no such topic; Unavailable: worth a retry; Refused: it will not be taken as it is."""
    reason = error.args[0] if isinstance(error, KafkaException) else error
    if reason.code() in GONE_TOPIC:
        return NotFound(f"cannot {verb} {topic}: there is no such topic")
    if reason.retriable() or reason.code() < 0 or reason.code() in _PASSING:
        return Unavailable(f"cannot {verb} {topic}", found=reason.str(), action="retry")
    return Refused(f"Kafka refuses to {verb} {topic}", found=reason.str())
