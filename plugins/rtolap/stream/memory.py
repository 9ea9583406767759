"""Kafka's deterministic twin: logs in memory, shared by consumers, producers and admins of one broker.

Single process, thread-safe. It knows what the contract suite knows: offsets with gaps, trimmed logs, deleted
topics, added partitions, a broker that is down. A record goes to the partition it names, else by the crc32 of
its key, else in turn.
"""

from __future__ import annotations

import bisect
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Condition

import numpy as np

from rtolap.base.errors import DefinitionError, NotFound, Refused, Unavailable
from rtolap.model.offsets import Offsets
from rtolap.stream.consumer import Batch, LogRange, OffsetsGone, OutRecord


@dataclass(slots=True)
class _Log:
    """`records[i]` has offset `offsets[i]`; offsets grow, with gaps where nothing can be read."""

    start: int = 0
    end: int = 0
    offsets: list[int] = field(default_factory=list)
    records: list[OutRecord] = field(default_factory=list)


class MemoryBroker:
    """Topics by name. `changed` is notified whenever a consumer could see something new."""

    def __init__(self) -> None:
        self.changed = Condition()
        self._topics: dict[str, list[_Log]] = {}
        self._turn = 0
        self.down = False

    def set_down(self, down: bool) -> None:
        """A broker that is down keeps its logs and answers nobody."""
        with self.changed:
            self.down = down
            self.changed.notify_all()

    def skip(self, topic: str, partition: int, offsets: int) -> None:
        """Use up offsets without a record, as transaction markers and compaction do."""
        with self.changed:
            self.logs(topic)[partition].end += offsets
            self.changed.notify_all()

    def logs(self, topic: str) -> list[_Log]:
        """Call with `changed` held. NotFound."""
        if topic not in self._topics:
            raise NotFound(f"there is no topic {topic}", action="create it, or mend the table's topic")
        return self._topics[topic]

    def create(self, topic: str, partitions: int) -> bool:
        with self.changed:
            if topic in self._topics:
                return False
            self._topics[topic] = [_Log() for _ in range(partitions)]
            self.changed.notify_all()
            return True

    def delete(self, topic: str) -> None:
        with self.changed:
            self.logs(topic)
            del self._topics[topic]
            self.changed.notify_all()

    def append(self, topic: str, record: OutRecord) -> tuple[int, int]:
        """(partition, offset) of the new record."""
        with self.changed:
            logs = self.logs(topic)
            if record.partition is not None:
                partition = record.partition
            elif record.key is not None:
                partition = zlib.crc32(record.key) % len(logs)
            else:
                partition, self._turn = self._turn % len(logs), self._turn + 1
            if not 0 <= partition < len(logs):
                raise Refused(f"{topic} has no partition {partition}", expected=f"below {len(logs)}")
            log = logs[partition]
            log.offsets.append(log.end)
            log.records.append(record)
            log.end += 1
            self.changed.notify_all()
            return partition, log.end - 1


class MemoryConsumer:
    """StreamConsumer over a MemoryBroker. Takes partitions in ascending order, each as far as it may."""

    def __init__(self, broker: MemoryBroker, topic: str, *, with_create_ms: bool = False) -> None:
        self.topic = topic
        self._broker = broker
        self._with_create_ms = with_create_ms
        self._positions: Offsets = {}
        self._paused: set[int] = set()

    def assign(self, offsets: Offsets) -> None:
        self._positions = dict(offsets)
        self._paused &= offsets.keys()

    def add_partitions(self, offsets: Offsets) -> None:
        self._positions = offsets | self._positions

    def poll(self, records_max: int, timeout_s: float) -> Batch:
        deadline = time.monotonic() + timeout_s
        with self._broker.changed:
            while True:
                batch = self._take(records_max)
                left_s = deadline - time.monotonic()
                if len(batch) or left_s <= 0:
                    return batch
                self._broker.changed.wait(left_s)

    def position(self) -> Offsets:
        return dict(self._positions)

    def log_range(self, partition: int, timeout_s: float = 5.0) -> LogRange:
        with self._broker.changed:
            log = self._answering()[partition]
            return LogRange(log.start, log.end)

    def partitions(self, timeout_s: float = 5.0) -> list[int]:
        with self._broker.changed:
            return list(range(len(self._answering())))

    def pause(self, partitions: Iterable[int] | None = None) -> None:
        self._paused |= set(self._positions if partitions is None else partitions)

    def resume(self, partitions: Iterable[int] | None = None) -> None:
        self._paused -= set(self._positions if partitions is None else partitions)
        with self._broker.changed:
            self._broker.changed.notify_all()

    @property
    def broker_trouble(self) -> str | None:
        return "the broker is down" if self._broker.down else None

    def close(self) -> None:
        self._positions = {}

    def _answering(self) -> list[_Log]:
        if self._broker.down:
            raise Unavailable(f"the broker does not answer for topic {self.topic}", action="retry")
        return self._broker.logs(self.topic)

    def _readable(self) -> list[tuple[int, int, _Log]]:
        """(partition, position, log) of what is assigned and not paused; raises for what is unreadable."""
        found = []
        for partition, position in sorted(self._positions.items()) if not self._broker.down else ():
            logs = self._broker.logs(self.topic)
            if partition >= len(logs):
                raise NotFound(f"{self.topic} has no partition {partition}")
            log = logs[partition]
            if partition in self._paused:
                continue
            if not log.start <= position <= log.end:
                raise OffsetsGone(self.topic, partition, position=position, start=log.start, end=log.end)
            found.append((partition, position, log))
        return found

    def _take(self, records_max: int) -> Batch:
        values: list[bytes | None] = []
        partitions: list[int] = []
        offsets: list[int] = []
        created: list[int] = []
        for partition, position, log in self._readable():
            if len(values) >= records_max:
                break
            first = bisect.bisect_left(log.offsets, position)
            last = min(len(log.offsets), first + records_max - len(values))
            taken = log.records[first:last]
            values += [record.value for record in taken]
            created += [-1 if record.timestamp_ms is None else record.timestamp_ms for record in taken]
            partitions += [partition] * len(taken)
            offsets += log.offsets[first:last]
            self._positions[partition] = log.end if last == len(log.offsets) else log.offsets[last - 1] + 1
        return Batch(
            values,
            np.array(partitions, np.int32),
            np.array(offsets, np.int64),
            np.array(created, np.int64) if self._with_create_ms else None,
        )


class MemoryProducer:
    """StreamProducer."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    def produce(self, topic: str, records: Sequence[OutRecord]) -> None:
        if self._broker.down:
            raise Unavailable(f"the broker does not answer for topic {topic}", action="retry")
        for record in records:
            self._broker.append(topic, record)

    def flush(self, timeout_s: float) -> None:
        """Everything is acknowledged already."""

    def close(self) -> None:
        """Nothing is open."""


class MemoryAdmin:
    """TopicAdmin."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    def create_topic(
        self, topic: str, partitions: int, *, replication: int = 1, config: Mapping[str, str] | None = None
    ) -> bool:
        return self._broker.create(topic, partitions)

    def delete_topic(self, topic: str) -> None:
        self._broker.delete(topic)

    def add_partitions(self, topic: str, total: int) -> None:
        with self._broker.changed:
            logs = self._broker.logs(topic)
            if total <= len(logs):
                raise Refused(f"{topic} has {len(logs)} partitions already", expected=f"more than {total}")
            logs.extend(_Log() for _ in range(total - len(logs)))
            self._broker.changed.notify_all()

    def partitions(self, topic: str) -> list[int]:
        with self._broker.changed:
            return list(range(len(self._broker.logs(topic))))

    def offsets(self, topic: str, which: str) -> Offsets:
        if which not in ("earliest", "latest"):
            raise DefinitionError("no such offset", expected="earliest or latest", found=repr(which))
        with self._broker.changed:
            logs = self._broker.logs(topic)
            return {at: log.start if which == "earliest" else log.end for at, log in enumerate(logs)}

    def delete_records(self, topic: str, before: Offsets) -> None:
        with self._broker.changed:
            logs = self._broker.logs(topic)
            for partition, offset in before.items():
                log = logs[partition]
                log.start = max(log.start, min(offset, log.end))
                first = bisect.bisect_left(log.offsets, log.start)
                del log.offsets[:first]
                del log.records[:first]

    def close(self) -> None:
        """Nothing is open."""
