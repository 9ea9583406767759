"""What the broker says of one topic: its partitions and what their logs hold."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaException, TopicPartition

from rtolap.base.errors import NotFound, Unavailable
from rtolap.stream.consumer import LogRange
from rtolap.stream.kafka_errors import GONE_TOPIC


class TopicLookup:
    """Thread-safe. The contract: `consumer.StreamConsumer`.

    It has a client of its own, which reads nothing: a look-up waits for a client that another thread polls,
    and one that polls without a pause is never free.
    """

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic

    def log_range(self, partition: int, timeout_s: float) -> LogRange:
        try:
            found = self._consumer.get_watermark_offsets(
                TopicPartition(self._topic, partition), timeout=timeout_s, cached=False
            )
        except KafkaException as error:
            if error.args[0].code() in GONE_TOPIC:
                raise self.gone() from error
            raise self.unavailable("tell its offsets", error) from error
        except RuntimeError as error:  # closed by another thread meanwhile
            raise self.unavailable("tell its offsets", error) from error
        if found is None:
            raise self.unavailable("tell its offsets", "no answer in time")
        return LogRange(*found)

    def partitions(self, timeout_s: float) -> list[int]:
        try:
            topics = self._consumer.list_topics(self._topic, timeout=timeout_s).topics
        except KafkaException as error:
            raise self.unavailable("tell its partitions", error) from error
        except RuntimeError as error:  # closed by another thread meanwhile
            raise self.unavailable("tell its partitions", error) from error
        described = topics.get(self._topic)
        if described is None or not described.partitions:
            reason = described.error if described is not None else None
            if reason is None or reason.code() in GONE_TOPIC:
                raise self.gone()
            raise self.unavailable("tell its partitions", reason)
        return sorted(described.partitions)

    def close(self) -> None:
        self._consumer.close()

    def gone(self) -> NotFound:
        return NotFound(
            f"there is no topic {self._topic}",
            action="create it, or mend the table's topic; it may have been deleted",
        )

    def unavailable(self, what: str, error: object) -> Unavailable:
        return Unavailable(
            f"Kafka could not {what} for topic {self._topic}", found=str(error), action="retry"
        )
