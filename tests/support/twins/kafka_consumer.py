"""The consumer of Kafka in memory. The broker: `broker`; the producer: `producer`."""

from __future__ import annotations

import bisect
import time
from collections.abc import Iterable, Mapping

import numpy as np
from rtolap.base.errors import NotFound, Unavailable
from rtolap.kafka.interfaces import (
    BATCH_BYTES_MAX,
    WATERMARK_HEADER,
    Batch,
    EpochEnd,
    LogRange,
    OffsetsGone,
)
from rtolap.model.leader_epochs import LeaderEpochs
from rtolap.model.offsets import Offsets

from tests.support.twins.kafka_broker import Log, MemoryBroker


class MemoryConsumer:
    """StreamConsumer over a MemoryBroker. Takes partitions in ascending order, each as far as it may."""

    def __init__(
        self,
        broker: MemoryBroker,
        topic: str,
        *,
        with_create_ms: bool = False,
        with_statements: bool = False,
    ) -> None:
        self.topic = topic
        self._broker = broker
        self._with_create_ms = with_create_ms
        self._with_statements = with_statements
        self._positions: Offsets = {}
        self._paused: set[int] = set()

    def assign(self, offsets: Offsets) -> None:
        self._positions = dict(offsets)
        self._paused &= offsets.keys()

    def add_partitions(self, offsets: Offsets) -> None:
        self._positions = offsets | self._positions

    def remove_partitions(self, partitions: Iterable[int]) -> None:
        for partition in set(partitions) & self._positions.keys():
            del self._positions[partition]
            self._paused.discard(partition)

    def poll(self, records_max: int, timeout_s: float, *, bytes_max: int = BATCH_BYTES_MAX) -> Batch:
        deadline = time.monotonic() + timeout_s
        with self._broker.changed:
            while True:
                batch = self._take(records_max, bytes_max)
                left_s = deadline - time.monotonic()
                if len(batch) or left_s <= 0:
                    return batch
                self._broker.changed.wait(left_s)

    def position(self) -> Offsets:
        return dict(self._positions)

    def known_ends(self) -> Offsets:
        with self._broker.changed:
            try:
                logs = self._broker.logs(self.topic)
            except NotFound:
                return {}
            return {partition: logs[partition].end for partition in self._positions if partition < len(logs)}

    def log_range(self, partition: int, timeout_s: float = 5.0) -> LogRange:
        with self._broker.changed:
            log = self._answering()[partition]
            return LogRange(log.start, log.end)

    def partitions(self, timeout_s: float = 5.0) -> list[int]:
        with self._broker.changed:
            return list(range(len(self._answering())))

    def topic_id(self, timeout_s: float = 5.0) -> str:
        with self._broker.changed:
            self._answering()
            return self._broker.topic_id(self.topic)

    def epoch_ends(self, epochs: Mapping[int, int | None], timeout_s: float = 5.0) -> dict[int, EpochEnd]:
        with self._broker.changed:
            logs = self._answering()
            ends = {partition: logs[partition].epoch_end(epoch) for partition, epoch in epochs.items()}
        found = {partition: end for partition, end in ends.items() if end is not None}
        if len(found) < len(ends):
            raise Unavailable(f"a leader of topic {self.topic} does not know the epoch", action="retry")
        return found

    def pause(self, partitions: Iterable[int] | None = None) -> None:
        self._paused |= set(self._positions if partitions is None else partitions)

    def resume(self, partitions: Iterable[int] | None = None) -> None:
        self._paused -= set(self._positions if partitions is None else partitions)
        with self._broker.changed:
            self._broker.changed.notify_all()

    @property
    def broker_error(self) -> str | None:
        return "the broker is down" if self._broker.down else None

    def close(self) -> None:
        self._positions = {}

    def _answering(self) -> list[Log]:
        if self._broker.down:
            raise Unavailable(f"the broker does not answer for topic {self.topic}", action="retry")
        return self._broker.logs(self.topic)

    def _readable(self) -> list[tuple[int, int, Log]]:
        """Return (partition, position, log) of what is assigned and not paused; raises for what is
        unreadable."""
        readable = []
        for partition, position in sorted(self._positions.items()) if not self._broker.down else ():
            logs = self._broker.logs(self.topic)
            if partition >= len(logs):
                raise NotFound(f"{self.topic} has no partition {partition}")
            log = logs[partition]
            if partition in self._paused:
                continue
            if not log.start <= position <= log.end:
                raise OffsetsGone(self.topic, partition, position=position, start=log.start, end=log.end)
            readable.append((partition, position, log))
        return readable

    def _take(self, records_max: int, bytes_max: int) -> Batch:
        values: list[bytes | None] = []
        partitions: list[int] = []
        offsets: list[int] = []
        created: list[int] = []
        statements: list[bytes | None] = []
        epochs: dict[int, LeaderEpochs] = {}
        left = bytes_max
        for partition, position, log in self._readable():
            if len(values) >= records_max or left <= 0:
                break
            first = last = bisect.bisect_left(log.offsets, position)
            while last < len(log.offsets) and last - first < records_max - len(values) and left > 0:
                left -= len(log.records[last].value or b"")
                last += 1
            taken = log.records[first:last]
            values += [record.value for record in taken]
            created += [-1 if record.timestamp_ms is None else record.timestamp_ms for record in taken]
            statements += [record.headers.get(WATERMARK_HEADER) for record in taken]
            partitions += [partition] * len(taken)
            offsets += log.offsets[first:last]
            if taken:
                epochs[partition] = log.read_epochs(log.offsets[first:last])
            self._positions[partition] = log.end if last == len(log.offsets) else log.offsets[last - 1] + 1
        return Batch(
            values,
            np.array(partitions, np.int32),
            np.array(offsets, np.int64),
            np.array(created, np.int64) if self._with_create_ms else None,
            statements if self._with_statements else None,
            epochs,
        )
