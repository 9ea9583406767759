"""Kafka through confluent-kafka (librdkafka), for data: the consumer. Producer and admin: `kafka_out`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from threading import Lock

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from rtolap.base.errors import NotFound, RtolapError, Unavailable
from rtolap.kafka.batch import joined, to_batch, value_bytes
from rtolap.kafka.clusters import KafkaCluster
from rtolap.kafka.errors import GONE_OFFSET, GONE_TOPIC, close_client
from rtolap.kafka.interfaces import BATCH_BYTES_MAX, Batch, EpochEnd, LogRange, OffsetsGone
from rtolap.kafka.settings import consumer_settings
from rtolap.kafka.statistics import INTERVAL_MS, ClientStatistics, ConsumerFeed
from rtolap.kafka.topic_lookup import TopicLookup
from rtolap.model.offsets import Offsets

GROUP_RECORDS = 10_000  # taken at once: the bytes of a batch are counted between groups
TOPIC_CHECK_S = 2.0  # a silent consumer asks this often whether its topic is still there
_CHECK_TIMEOUT_S = 1.0
_MISSES_MAX = 2  # a broker that has just started may not know all topics yet


class KafkaConsumer:
    """The StreamConsumer of a real cluster. It joins no group: assignment is ours, and so are the positions.

    `cluster` of this and the other clients: one with settings, or bootstrap servers that need none.
    """

    def __init__(
        self,
        cluster: KafkaCluster | str,
        topic: str,
        *,
        client_id: str = "rtolap",
        with_create_ms: bool = False,
        with_statements: bool = False,
        sources: Sequence[str] = (),
        statistics: ClientStatistics | None = None,
    ) -> None:
        """Connect. `sources`: see `Batch.texts`. This consumer tells `statistics`, those of the process, how
        its brokers answer."""
        self.topic = topic
        self._with_create_ms = with_create_ms
        self._with_statements = with_statements
        self._sources = tuple(sources)
        self._positions: Offsets = {}
        self._paused: set[int] = set()
        self._pending: RtolapError | None = None
        self._broker_error: str | None = None
        self._trouble_lock = Lock()
        self._misses = 0
        self._next_check_s = time.monotonic() + TOPIC_CHECK_S
        reached = KafkaCluster.of(cluster)
        settings = consumer_settings(client_id) | {"error_cb": self._on_error}
        self._feed: ConsumerFeed | None = None
        if statistics is not None:
            wait_ms = reached.settings.get("fetch.wait.max.ms", settings["fetch.wait.max.ms"])
            self._feed = statistics.feed(topic, float(wait_ms) / 1000)
            settings |= {"statistics.interval.ms": INTERVAL_MS, "stats_cb": self._feed.hear}
        self._consumer = reached.open(Consumer, settings)
        self._topic = TopicLookup(reached, client_id, topic)

    def assign(self, offsets: Offsets) -> None:
        self._positions = dict(offsets)
        self._paused &= offsets.keys()
        self._pending = None
        self._reassign()

    def add_partitions(self, offsets: Offsets) -> None:
        new = {partition: at for partition, at in offsets.items() if partition not in self._positions}
        if not new:
            return
        self._positions |= new
        try:
            self._consumer.incremental_assign(
                [TopicPartition(self.topic, partition, at) for partition, at in new.items()]
            )
        except KafkaException as error:
            raise self._topic.unavailable("be assigned", error) from error

    def remove_partitions(self, partitions: Iterable[int]) -> None:
        chosen = set(partitions) & self._positions.keys()
        if not chosen:
            return
        for partition in chosen:
            del self._positions[partition]
        self._paused -= chosen
        if isinstance(self._pending, OffsetsGone) and self._pending.partition in chosen:
            self._pending = None
        try:
            self._consumer.incremental_unassign(self._topic_partitions(chosen))
        except KafkaException as error:
            raise self._topic.unavailable("be assigned", error) from error

    def poll(self, records_max: int, timeout_s: float, *, bytes_max: int = BATCH_BYTES_MAX) -> Batch:
        self._raise_pending()
        taken = _Taken(
            with_create_ms=self._with_create_ms, with_statements=self._with_statements, sources=self._sources
        )
        self._take(taken, records_max, bytes_max)
        if not taken.messages:
            taken.add_messages(self._consumer.consume(1, timeout_s))  # returns at the first arrival …
            if taken.messages and records_max > 1:
                self._take(taken, records_max - 1, bytes_max)  # … with what came along
        batch = self._noted(taken.batch(), taken.events)
        if not len(batch):
            self._check_topic()
            self._raise_pending()
        return batch

    def position(self) -> Offsets:
        return dict(self._positions)

    def known_ends(self) -> Offsets:
        ends: Offsets = {}
        for partition in self._positions:
            known = self._consumer.get_watermark_offsets(TopicPartition(self.topic, partition), cached=True)
            if known is not None and known[1] >= 0:
                ends[partition] = known[1]
        return ends

    def log_range(self, partition: int, timeout_s: float = 5.0) -> LogRange:
        return self._topic.log_range(partition, timeout_s)

    def partitions(self, timeout_s: float = 5.0) -> list[int]:
        return self._topic.partitions(timeout_s)

    def topic_id(self, timeout_s: float = 5.0) -> str:
        return self._topic.topic_id(timeout_s)

    def epoch_ends(self, epochs: Mapping[int, int | None], timeout_s: float = 5.0) -> dict[int, EpochEnd]:
        return self._topic.epoch_ends(epochs, timeout_s)

    def pause(self, partitions: Iterable[int] | None = None) -> None:
        chosen = set(self._positions if partitions is None else partitions)
        self._paused |= chosen
        self._consumer.pause(self._topic_partitions(chosen))

    def resume(self, partitions: Iterable[int] | None = None) -> None:
        chosen = set(self._positions if partitions is None else partitions) & self._paused
        self._paused -= chosen
        self._consumer.resume(self._topic_partitions(chosen))

    @property
    def broker_error(self) -> str | None:
        return self._broker_error

    def close(self) -> None:
        if self._feed is not None:
            self._feed.close()
        self._topic.close()
        close_client(f"a consumer of {self.topic}", self._consumer.close)

    def _take(self, taken: _Taken, records_max: int, bytes_max: int) -> None:
        """Take what is fetched already, a group at a time: large records shall not make a large batch."""
        left, size = records_max, 0
        while left > 0 and size < bytes_max:
            group = self._consumer.consume(min(GROUP_RECORDS, left), 0)
            taken.add_messages(group)
            if len(group) < GROUP_RECORDS:
                break
            left, size = left - len(group), size + value_bytes(group)

    def _raise_pending(self) -> None:
        """Raise a pending error. An offset that is gone stays gone until `assign`; any other error may
        pass."""
        error = self._pending
        if error is not None:
            if not isinstance(error, OffsetsGone):
                self._pending = None
            raise error

    def _check_topic(self) -> None:
        """Look now and then whether a quiet topic was deleted, which librdkafka does not report."""
        now_s = time.monotonic()
        if not self._positions or now_s < self._next_check_s:
            return
        self._next_check_s = now_s + TOPIC_CHECK_S
        try:
            present = set(self.partitions(timeout_s=_CHECK_TIMEOUT_S))
        except Unavailable as error:
            self._broker_error = str(error)
            return
        except NotFound:
            present = set()
        self._broker_error = None
        self._misses = 0 if present.issuperset(self._positions) else self._misses + 1
        if self._misses >= _MISSES_MAX:
            raise self._topic.gone()

    def _reassign(self) -> None:
        try:
            self._consumer.assign(
                [TopicPartition(self.topic, partition, at) for partition, at in self._positions.items()]
            )
            if self._paused:
                self._consumer.pause(self._topic_partitions(self._paused))
        except KafkaException as error:
            raise self._topic.unavailable("be assigned", error) from error

    def _noted(self, batch: Batch, events: Iterable[Message]) -> Batch:
        """Note the positions behind the records, and what the client has said beside them."""
        if len(batch):
            ends = np.zeros(int(batch.partitions.max()) + 1, np.int64)
            np.maximum.at(ends, batch.partitions, batch.offsets + 1)
            for partition in np.flatnonzero(ends).tolist():
                self._positions[partition] = int(ends[partition])
        self._note_events(events)
        if len(batch):
            self._broker_error = None
        return batch

    def _note_events(self, events: Iterable[Message]) -> None:
        """Note ends of partitions and errors; an error is raised once the records before it are out."""
        for message in events:
            error = message.error()
            assert error is not None, "else it is a record"
            partition = int(message.partition() or 0)
            if error.code() == KafkaError._PARTITION_EOF:
                if partition in self._positions:
                    end = int(message.offset() or 0)
                    self._positions[partition] = max(self._positions[partition], end)
            elif error.code() in GONE_OFFSET:
                self._pending = self._offsets_gone(partition)
            elif error.code() in GONE_TOPIC:
                self._pending = self._topic.gone()
            else:
                self._on_error(error)

    def _offsets_gone(self, partition: int) -> RtolapError:
        position = self._positions.get(partition, -1)
        try:
            known = self.log_range(partition)
        except RtolapError as error:
            return error
        return OffsetsGone(self.topic, partition, position=position, start=known.start, end=known.end)

    def _topic_partitions(self, partitions: Iterable[int]) -> list[TopicPartition]:
        return [TopicPartition(self.topic, partition) for partition in sorted(partitions)]

    def _on_error(self, error: KafkaError) -> None:
        """Log an error of a connection. Connections come and go, and librdkafka retries for ever; people see
        the log."""
        with self._trouble_lock:
            self._broker_error = error.str()


class _Taken:
    """The records of one poll. A group becomes columns at once, while the cache has its messages."""

    def __init__(self, *, with_create_ms: bool, with_statements: bool, sources: Sequence[str]) -> None:
        self.messages = 0  # records and events
        self.batches: list[Batch] = []
        self.events: list[Message] = []
        self._with_create_ms = with_create_ms
        self._with_statements = with_statements
        self._sources = sources

    def add_messages(self, group: list[Message]) -> None:
        self.messages += len(group)
        if not group:
            return
        errors = list(map(Message.error, group))
        if any(errors):  # at the log's end, of each partition
            self.events += compress(group, errors)
            group = [message for message, error in zip(group, errors, strict=True) if error is None]
        self.batches.append(self._columns(group))

    def batch(self) -> Batch:
        return joined(self.batches) if self.batches else self._columns([])

    def _columns(self, records: list[Message]) -> Batch:
        return to_batch(
            records,
            with_create_ms=self._with_create_ms,
            with_statements=self._with_statements,
            sources=self._sources,
        )
