"""Kafka in memory, deterministic: logs shared by consumers, producers and admins of one broker.

Single process, thread-safe. It knows what the contract suite knows: offsets with gaps, trimmed logs, deleted
topics, added partitions, a broker that is down, a topic's limit on the size of a record. A record goes to the
partition it names, else by the crc32 of its key, else in turn.
"""

from __future__ import annotations

import bisect
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Condition
from typing import NamedTuple

from rtolap.base.errors import NotFound, Refused, TooLarge
from rtolap.kafka.interfaces import EpochEnd, OutRecord
from rtolap.model.leader_epochs import EpochRange, LeaderEpochs


class LeaderStart(NamedTuple):
    """A leader's epoch, and the first offset that it gave."""

    epoch: int
    start: int


@dataclass(slots=True)
class Log:
    """`records[i]` has offset `offsets[i]`; offsets grow, with gaps where nothing can be read.
    `epochs`: where each leader's records begin, the last one's even before there is one."""

    start: int = 0
    end: int = 0
    offsets: list[int] = field(default_factory=list)
    records: list[OutRecord] = field(default_factory=list)
    epochs: list[LeaderStart] = field(default_factory=lambda: [LeaderStart(0, 0)])

    def elect(self) -> None:
        """Give the partition another leader, which takes what comes from now on."""
        self.epochs.append(LeaderStart(self.epochs[-1].epoch + 1, self.end))

    def cut(self, end: int) -> None:
        """Lose the tail, as by an unclean election; the next records get its offsets, and a larger epoch."""
        epoch = self.epochs[-1].epoch + 1
        kept = bisect.bisect_left(self.offsets, end)
        del self.offsets[kept:], self.records[kept:]
        self.end = max(self.start, min(self.end, end))
        self.epochs = [known for known in self.epochs if known.start < self.end]
        self.epochs.append(LeaderStart(epoch, self.end))

    def epoch_end(self, epoch: int | None) -> EpochEnd | None:
        """Return the end of the largest epoch up to that one, as a leader tells it; None of a larger one than
        its own."""
        if epoch is None:
            return EpochEnd(self.epochs[-1].epoch, self.end)
        if epoch > self.epochs[-1].epoch:
            return None
        later = next((known.start for known in self.epochs if known.epoch > epoch), self.end)
        return EpochEnd(max((k.epoch for k in self.epochs if k.epoch <= epoch), default=epoch), later)

    def read_epochs(self, read: list[int]) -> LeaderEpochs:
        """Return the epochs of the records at these offsets."""
        begins = [known.start for known in self.epochs]
        ranges: dict[int, EpochRange] = {}
        for offset in read:
            epoch = self.epochs[max(0, bisect.bisect_right(begins, offset) - 1)].epoch
            start = ranges[epoch].start if epoch in ranges else offset
            ranges[epoch] = EpochRange(epoch, start, offset + 1)
        return LeaderEpochs(tuple(ranges.values()))


class MemoryBroker:
    """Topics by name. `changed` is notified whenever a consumer could see something new."""

    def __init__(self) -> None:
        self.changed = Condition()
        self._topics: dict[str, list[Log]] = {}
        self._config: dict[str, Mapping[str, str]] = {}
        self._ids: dict[str, str] = {}
        self._created = 0
        self._epochs: dict[str, int] = {}
        self._turn = 0
        self.down = False

    def set_down(self, down: bool) -> None:
        """Set a broker down, which keeps its logs and gives no answers, or up again."""
        with self.changed:
            self.down = down
            self.changed.notify_all()

    def skip(self, topic: str, partition: int, offsets: int) -> None:
        """Use up offsets without a record, as transaction markers and compaction do."""
        with self.changed:
            self.logs(topic)[partition].end += offsets
            self.changed.notify_all()

    def elect(self, topic: str, partition: int) -> None:
        """Give a partition another leader, which has all that the one before had."""
        with self.changed:
            self.logs(topic)[partition].elect()

    def cut(self, topic: str, partition: int, end: int) -> None:
        """Give a partition another leader, which lacks what lies at or beyond the offset."""
        with self.changed:
            self.logs(topic)[partition].cut(end)
            self.changed.notify_all()

    def logs(self, topic: str) -> list[Log]:
        """Call with `changed` held. NotFound."""
        if topic not in self._topics:
            raise NotFound(f"there is no topic {topic}", action="create it, or mend the table's topic")
        return self._topics[topic]

    def topic_id(self, topic: str) -> str:
        """Call with `changed` held. NotFound."""
        self.logs(topic)
        return self._ids[topic]

    def create(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> bool:
        with self.changed:
            if topic in self._topics:
                return False
            self._topics[topic] = [Log() for _ in range(partitions)]
            self._config[topic] = dict(config or {})
            self._created += 1
            self._ids[topic] = f"id-{self._created}"
            self.changed.notify_all()
            return True

    def delete(self, topic: str) -> None:
        with self.changed:
            self.logs(topic)
            del self._topics[topic]
            self.changed.notify_all()

    @contextmanager
    def not_known_yet(self, topic: str) -> Iterator[None]:
        """Answer as a broker does that has just started, and has not heard of the topic."""
        logs = self.logs(topic)
        del self._topics[topic]
        yield
        self._topics[topic] = logs

    def configure(self, topic: str, **config: str) -> None:
        """Change settings of a topic; names with `_` for the point."""
        with self.changed:
            self.logs(topic)
            named = {name.replace("_", "."): value for name, value in config.items()}
            self._config[topic] = {**self._config[topic], **named}

    def begin_epoch(self, transactional_id: str) -> int:
        """Return a new epoch of the id; those before it are over."""
        with self.changed:
            self._epochs[transactional_id] = self._epochs.get(transactional_id, 0) + 1
            return self._epochs[transactional_id]

    def epoch(self, transactional_id: str) -> int:
        with self.changed:
            return self._epochs.get(transactional_id, 0)

    def check(self, topic: str, record: OutRecord) -> None:
        """Raise what `append` would."""
        with self.changed:
            logs = self.logs(topic)
            size, most = len(record.value or b""), self._config[topic].get("max.message.bytes")
            if most is not None and size > int(most):
                raise TooLarge(f"{topic} takes no such record", expected=f"at most {most} bytes", found=size)
            if record.partition is not None and not 0 <= record.partition < len(logs):
                raise Refused(f"{topic} has no partition {record.partition}", expected=f"below {len(logs)}")

    def append(self, topic: str, record: OutRecord) -> tuple[int, int]:
        """Return (partition, offset) of the new record. Refused: it is larger than the topic takes."""
        with self.changed:
            self.check(topic, record)
            logs = self.logs(topic)
            if record.partition is not None:
                partition = record.partition
            elif record.key is not None:
                partition = zlib.crc32(record.key) % len(logs)
            else:
                partition, self._turn = self._turn % len(logs), self._turn + 1
            log = logs[partition]
            log.offsets.append(log.end)
            log.records.append(record)
            log.end += 1
            self.changed.notify_all()
            return partition, log.end - 1
