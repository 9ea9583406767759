"""Kafka through confluent-kafka (librdkafka), for data: the consumer. Producer and admin: `kafka_out`.

Settings that matter, and why:

| setting | value | why |
|---|---|---|
| `fetch.queue.backoff.ms` | 5 | the default of 1000 lets a consumer sleep that has drained its queue |
| `fetch.wait.max.ms` | 100 | a broker answers at once when it has data; this bounds only the idle wait |
| `auto.offset.reset` | error | an offset outside the log is never skipped silently |
| `enable.partition.eof` | true | at the log's end, positions pass transaction markers and compaction gaps |
| `queued.max.messages.kbytes` | 65536 | bounds what is fetched ahead |
| `isolation.level` | read_committed | aborted transactions are no events |
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import chain
from threading import Lock

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from rtolap.base.errors import NotFound, RtolapError, Unavailable
from rtolap.model.offsets import Offsets
from rtolap.stream.consumer import Batch, LogRange, OffsetsGone

QUEUED_KBYTES_MAX = 65_536
TOPIC_CHECK_S = 2.0  # a silent consumer asks this often whether its topic is still there
_CHECK_TIMEOUT_S = 1.0
_MISSES_MAX = 2  # a broker that has just started may not know all topics yet
_GONE_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
_GONE_OFFSET = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


class KafkaConsumer:
    """StreamConsumer on a real cluster. Joins no group: assignment is ours, and so are the positions."""

    def __init__(
        self, bootstrap: str, topic: str, *, client_id: str = "rtolap", with_create_ms: bool = False
    ) -> None:
        self.topic = topic
        self._with_create_ms = with_create_ms
        self._positions: Offsets = {}
        self._paused: set[int] = set()
        self._pending: RtolapError | None = None
        self._trouble: str | None = None
        self._trouble_lock = Lock()
        self._misses = 0
        self._next_check_s = time.monotonic() + TOPIC_CHECK_S
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": client_id,
                "group.id": f"{client_id}-unused",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "allow.auto.create.topics": False,
                "fetch.queue.backoff.ms": 5,
                "fetch.wait.max.ms": 100,
                "fetch.error.backoff.ms": 100,
                "queued.max.messages.kbytes": QUEUED_KBYTES_MAX,
                "topic.metadata.refresh.interval.ms": 5_000,
                "topic.metadata.propagation.max.ms": 3_000,
                "reconnect.backoff.max.ms": 1_000,
                "error_cb": self._on_error,
                "log_level": 2,
            }
        )

    def assign(self, offsets: Offsets) -> None:
        self._positions = dict(offsets)
        self._paused &= offsets.keys()
        self._pending = None
        self._reassign()

    def add_partitions(self, offsets: Offsets) -> None:
        self._positions = offsets | self._positions
        self._reassign()

    def poll(self, records_max: int, timeout_s: float) -> Batch:
        self._raise_pending()
        messages = self._consumer.consume(records_max, 0)
        if not messages:
            messages = self._consumer.consume(1, timeout_s)  # returns at the first arrival …
            if messages and records_max > 1:
                messages += self._consumer.consume(records_max - 1, 0)  # … with what came along
        if any(map(Message.error, messages)):
            messages = self._without_events(messages)
        batch = self._batch(messages)
        if not len(batch):
            self._check_topic()
            self._raise_pending()
        return batch

    def position(self) -> Offsets:
        return dict(self._positions)

    def log_range(self, partition: int, timeout_s: float = 5.0) -> LogRange:
        try:
            found = self._consumer.get_watermark_offsets(
                TopicPartition(self.topic, partition), timeout=timeout_s, cached=False
            )
        except KafkaException as error:
            if error.args[0].code() in _GONE_TOPIC:
                raise self._no_topic() from error
            raise self._unavailable("tell its offsets", error) from error
        if found is None:
            raise self._unavailable("tell its offsets", "no answer in time")
        return LogRange(*found)

    def partitions(self, timeout_s: float = 5.0) -> list[int]:
        try:
            topics = self._consumer.list_topics(self.topic, timeout=timeout_s).topics
        except KafkaException as error:
            raise self._unavailable("tell its partitions", error) from error
        described = topics.get(self.topic)
        if described is None or not described.partitions:
            reason = described.error if described is not None else None
            if reason is None or reason.code() in _GONE_TOPIC:
                raise self._no_topic()
            raise self._unavailable("tell its partitions", reason)
        return sorted(described.partitions)

    def pause(self, partitions: Iterable[int] | None = None) -> None:
        chosen = set(self._positions if partitions is None else partitions)
        self._paused |= chosen
        self._consumer.pause(self._topic_partitions(chosen))

    def resume(self, partitions: Iterable[int] | None = None) -> None:
        chosen = set(self._positions if partitions is None else partitions) & self._paused
        self._paused -= chosen
        self._consumer.resume(self._topic_partitions(chosen))

    @property
    def broker_trouble(self) -> str | None:
        return self._trouble

    def close(self) -> None:
        self._consumer.close()

    def _raise_pending(self) -> None:
        """An offset that is gone stays gone until `assign`; anything else may mend itself."""
        error = self._pending
        if error is not None:
            if not isinstance(error, OffsetsGone):
                self._pending = None
            raise error

    def _check_topic(self) -> None:
        """A quiet topic may be a deleted one, of which librdkafka says nothing: look now and then."""
        now_s = time.monotonic()
        if not self._positions or now_s < self._next_check_s:
            return
        self._next_check_s = now_s + TOPIC_CHECK_S
        try:
            present = set(self.partitions(timeout_s=_CHECK_TIMEOUT_S))
        except Unavailable as error:
            self._trouble = str(error)
            return
        except NotFound:
            present = set()
        self._trouble = None
        self._misses = 0 if present.issuperset(self._positions) else self._misses + 1
        if self._misses >= _MISSES_MAX:
            raise self._no_topic()

    def _reassign(self) -> None:
        try:
            self._consumer.assign(
                [TopicPartition(self.topic, partition, at) for partition, at in self._positions.items()]
            )
            if self._paused:
                self._consumer.pause(self._topic_partitions(self._paused))
        except KafkaException as error:
            raise self._unavailable("be assigned", error) from error

    def _batch(self, messages: list[Message]) -> Batch:
        count = len(messages)
        partitions = np.fromiter(map(Message.partition, messages), np.int32, count)
        offsets = np.fromiter(map(Message.offset, messages), np.int64, count)
        created = None
        if self._with_create_ms:
            pairs = chain.from_iterable(map(Message.timestamp, messages))  # (kind, ms); kind 0: there is none
            stamps = np.fromiter(pairs, np.int64, 2 * count).reshape(-1, 2)
            created = np.where(stamps[:, 0] == 0, -1, stamps[:, 1])
        if count:
            ends = np.zeros(int(partitions.max()) + 1, np.int64)
            np.maximum.at(ends, partitions, offsets + 1)
            for partition in np.flatnonzero(ends).tolist():
                self._positions[partition] = int(ends[partition])
        if count and self._trouble is not None:
            self._trouble = None
        return Batch(list(map(Message.value, messages)), partitions, offsets, created)

    def _without_events(self, messages: list[Message]) -> list[Message]:
        """Note ends of partitions and errors; an error is raised once the records before it are out."""
        records = [message for message in messages if message.error() is None]
        ends: Offsets = {}
        for message in messages:
            error = message.error()
            if error is None:
                continue
            partition = int(message.partition() or 0)
            if error.code() == KafkaError._PARTITION_EOF:
                ends[partition] = int(message.offset() or 0)
            elif error.code() in _GONE_OFFSET:
                self._pending = self._offsets_gone(partition, records)
            elif error.code() in _GONE_TOPIC:
                self._pending = self._no_topic()
            else:
                self._on_error(error)
        for partition, end in ends.items():
            if partition in self._positions:
                self._positions[partition] = max(self._positions[partition], end)
        return records

    def _offsets_gone(self, partition: int, records: list[Message]) -> RtolapError:
        position = self._positions.get(partition, -1)
        for message in records:
            if message.partition() == partition:
                position = int(message.offset() or 0) + 1
        try:
            known = self.log_range(partition)
        except RtolapError as error:
            return error
        return OffsetsGone(self.topic, partition, position=position, start=known.start, end=known.end)

    def _topic_partitions(self, partitions: Iterable[int]) -> list[TopicPartition]:
        return [TopicPartition(self.topic, partition) for partition in sorted(partitions)]

    def _on_error(self, error: KafkaError) -> None:
        """Connections come and go, librdkafka retries for ever; people get to see it."""
        with self._trouble_lock:
            self._trouble = error.str()

    def _no_topic(self) -> NotFound:
        return NotFound(
            f"there is no topic {self.topic}",
            action="create it, or mend the table's topic; it may have been deleted",
        )

    def _unavailable(self, what: str, error: object) -> Unavailable:
        return Unavailable(f"Kafka could not {what} for topic {self.topic}", found=str(error), action="retry")
