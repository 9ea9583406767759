"""The seam to Kafka: what the data path needs of a consumer, a producer and an administrator.

Implementations: `kafka` (confluent-kafka) and `memory` (deterministic, for tests and the in-process
harness). One contract suite runs on both. Offsets are next-to-read everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from rtolap.base.errors import NotFound, Refused, RtolapError
from rtolap.model.leader_epochs import PartitionEpochs
from rtolap.model.offsets import Offsets

BATCH_BYTES_MAX = 64 << 20  # of values in one batch, unless a caller says otherwise

WATERMARK_HEADER = "rtolap-watermark"
"""The header in which a record states its producer's watermark: docs/watermark_records.md."""


class OffsetsGone(Refused):
    """The position lies outside what the log still holds: retention was faster, or the topic was recreated.

    Nothing is skipped: the caller decides. `position` is next-to-read, the log holds `[start, end)`.
    """

    code = "offsets_gone"

    def __init__(self, topic: str, partition: int, *, position: int, start: int, end: int) -> None:
        self.topic, self.partition = topic, partition
        self.position, self.start, self.end = position, start, end
        super().__init__(
            f"{topic} partition {partition} no longer holds offset {position}",
            expected=f"an offset from {start} to {end}",
            found=position,
            action=(
                "raise the topic's retention; events between are lost to this cube"
                if position < start
                else "the log is shorter than what was read: was the topic deleted and recreated?"
            ),
        )


class TopicMissing(NotFound):
    """There is no topic under the name of the one that stored offsets count in."""

    code = "topic_missing"

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"there is no topic {topic}",
            action="create it, or mend the table's topic; it may have been deleted",
        )


class TopicRecreated(Refused):
    """The topic of that name is another one than the one that stored offsets count in.

    Its offsets mean other records: nothing that is read from it may be counted by them. `known` and `found`
    are topic ids.
    """

    code = "topic_recreated"

    def __init__(self, topic: str, *, known: str, found: str, action: str) -> None:
        self.topic, self.known, self.found_id = topic, known, found
        super().__init__(
            f"{self.code}: topic {topic} was deleted and recreated, its offsets count other records",
            expected=f"topic id {known}",
            found=found,
            action=action,
        )


class CutPartition(NamedTuple):
    """A partition whose log was cut.

    Attributes:
        partition: its number.
        position: next-to-read of what was read.
        diverges: from here on the log holds other records, or none.
    """

    partition: int
    position: int
    diverges: int


class LogTruncated(Refused):
    """Logs lost records that were read, and may hold others at their offsets: an unclean leader election, or
    a disk that lost its tail."""

    code = "log_truncated"

    def __init__(self, topic: str, cuts: Sequence[CutPartition], *, action: str) -> None:
        self.topic, self.cuts, self.action_text = topic, tuple(cuts), action
        named = "; ".join(
            f"partition {cut.partition} diverges at offset {cut.diverges}, before {cut.position}"
            for cut in self.cuts
        )
        super().__init__(
            f"{self.code}: the log of topic {topic} was cut below what was read of it",
            expected="the records that were read up to "
            + ", ".join(f"offset {cut.position} of partition {cut.partition}" for cut in self.cuts),
            found=named,
            action=action,
        )


class EpochEnd(NamedTuple):
    """The offset behind the last record of `epoch`, which is the largest one up to that which was asked."""

    epoch: int
    end: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Records in the order in which they arrived; offsets grow within each partition.

    `create_ms` is the record's timestamp, -1 where it has none; `statements` what its header
    `WATERMARK_HEADER` says, None where it has none. Both are None unless the consumer was opened for them.

    Attributes:
        epochs: the leader epochs of the records, without partitions of which the broker tells none.
        texts: keys and headers, by source (`key`, `header:<name>`), of a consumer that was opened for them.
    """

    values: list[bytes | None]
    partitions: NDArray[np.int32]
    offsets: NDArray[np.int64]
    create_ms: NDArray[np.int64] | None = None
    statements: list[bytes | None] | None = None
    epochs: PartitionEpochs = field(default_factory=dict)
    texts: Mapping[str, list[bytes | None]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.values)


class LogRange(NamedTuple):
    """The log holds `[start, end)`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TopicLog:
    """The contents of a topic, by partition. `topic_id`, looked up after the ranges: "" where the broker has
    none."""

    topic_id: str
    ranges: Mapping[int, LogRange]

    @property
    def ends(self) -> Offsets:
        return {partition: known.end for partition, known in self.ranges.items()}


class StreamConsumer(Protocol):
    """Reads assigned partitions of one topic from given offsets; joins no group and commits nothing.

    Not thread-safe, except `log_range`, `partitions`, `topic_id` and `epoch_ends`.
    """

    topic: str

    def assign(self, offsets: Offsets) -> None:
        """Read exactly these partitions from now on, each from its offset. Replaces what was assigned."""

    def add_partitions(self, offsets: Offsets) -> None:
        """Read these partitions too; those already assigned keep their position."""

    def remove_partitions(self, partitions: Iterable[int]) -> None:
        """Read these no more, and nothing else changes: no later poll has a record of them."""

    def poll(self, records_max: int, timeout_s: float, *, bytes_max: int = BATCH_BYTES_MAX) -> Batch:
        """Return what has arrived, at most `records_max`; waits up to `timeout_s` only while nothing has.

        It ends with the record that brings the values to `bytes_max` or more; a memory bound, not exact:
        a client that takes records in groups may end with the group.

        NotFound: the topic is gone. OffsetsGone: a position is outside the log; every poll says so until
        `assign` corrects it, for the other partitions' records must not hide it. A broker that is down gives
        empty batches until it is back; `broker_error` names the error.
        """

    def position(self) -> Offsets:
        """Return the next offset to read of every assigned partition.

        It passes compaction gaps and transaction markers, too.
        """

    def known_ends(self) -> Offsets:
        """Return the logs' ends that came with the last fetched records, without a request. Only assigned
        partitions with fetched records are in it.
        """

    def log_range(self, partition: int, timeout_s: float = 5.0) -> LogRange:
        """Return the offsets that the broker holds now. Unavailable when it does not answer."""

    def partitions(self, timeout_s: float = 5.0) -> list[int]:
        """Return partitions of the topic. NotFound when there is no such topic."""

    def topic_id(self, timeout_s: float = 5.0) -> str:
        """Return the id that the topic got when it was created, asked of a broker now: another one under the
        same name has another. "" of brokers that give none. NotFound; Unavailable.

        A consumer reads on in a topic that was created again, if that is long enough: see `topic_identity`.
        """

    def epoch_ends(self, epochs: Mapping[int, int | None], timeout_s: float = 5.0) -> dict[int, EpochEnd]:
        """Partition and epoch → where the log's records of that epoch end, asked of the leaders now. None is
        the leader's own epoch, whose end is that of the log.

        Unavailable: a leader does not answer, is being elected, or knows less of epochs than was read. That
        never says that a log was cut. NotFound: there is no such topic.
        """

    def pause(self, partitions: Iterable[int] | None = None) -> None:
        """Give no records of these partitions (None: of any) until resumed; positions stay."""

    def resume(self, partitions: Iterable[int] | None = None) -> None: ...

    @property
    def broker_error(self) -> str | None:
        """The last error of a connection that has not been followed by a record, for people."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class OutRecord:
    """A record to produce. Without `partition` the producer chooses by key (or spreads)."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    headers: Mapping[str, bytes] = field(default_factory=dict)
    timestamp_ms: int | None = None


Delivered = Callable[[OutRecord, RtolapError | None], None]


class StreamProducer(Protocol):
    """A producer that is idempotent with acks=all. Its own queue bounds it: `produce` waits when the queue is
    full."""

    def produce(
        self, topic: str, records: Sequence[OutRecord], *, delivered: Delivered | None = None
    ) -> None:
        """Queue the records. Unavailable when the queue stays full for a minute.

        `delivered` is called once for each record, with None when it is acknowledged or with why it never
        will be, on whichever thread produces, polls or flushes: it must be quick and thread-safe. `flush`
        does not raise the errors that are reported there.
        """

    def poll(self) -> None:
        """Tell what has been acknowledged or refused by now; waits for nothing."""

    def flush(self, timeout_s: float) -> None:
        """Return when everything queued is acknowledged; Unavailable, with how many are not, otherwise.

        Refused or NotFound: the broker will not take a record that was queued without `delivered`.
        """

    def close(self) -> None: ...


class TopicAdmin(Protocol):
    """Administration that the product itself needs; cluster operations live elsewhere."""

    def create_topic(
        self, topic: str, partitions: int, *, replication: int = 1, config: Mapping[str, str] | None = None
    ) -> bool:
        """Return True when it was created, False when it was there.

        `replication` -1: the brokers' default.
        """

    def delete_topic(self, topic: str) -> None: ...

    def add_partitions(self, topic: str, total: int) -> None:
        """Grow the topic to `total` partitions."""

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions. Raises NotFound if there is no such topic."""

    def topic_id(self, topic: str) -> str:
        """See `StreamConsumer.topic_id`."""

    def offsets(self, topic: str, which: str) -> Offsets:
        """Return the start ("earliest") or the end ("latest") of the log of each partition."""

    def delete_records(self, topic: str, before: Offsets) -> None:
        """Trim each log so that it starts at the given offset."""

    def close(self) -> None: ...
