"""What others do, to compare the rules with: watermarks of partitions, without a list of hosts."""

from __future__ import annotations

from dataclasses import dataclass

from rtolap.watermark.rules import Decision
from rtolap.watermark.snapshot import NEVER, Instants, SourceSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSnapshot(SourceSnapshot):
    """The partitions beside the hosts.

    Attributes:
        partition_latest_ms: largest event time of each partition.
        partition_idle_ms: for how long a partition was silent although it was read to its end; 0 while it is
            not silent.
    """

    partition_latest_ms: Instants
    partition_idle_ms: Instants


@dataclass(frozen=True, slots=True)
class PartitionBounded:
    """Flink's bounded out-of-orderness with idleness: the smallest of the partitions' largest event times,
    less the bound. Partitions silent at their end for `idle_ms` are left out; if all are, the largest
    counts."""

    bound_ms: int
    idle_ms: int

    def decide(self, snapshot: SourceSnapshot) -> Decision:
        assert isinstance(snapshot, PartitionSnapshot), "it goes by partitions"
        latest_ms = snapshot.partition_latest_ms
        active = latest_ms[snapshot.partition_idle_ms < self.idle_ms]
        largest = active.min() if active.size else latest_ms.max() if latest_ms.size else NEVER
        return _less(int(largest), self.bound_ms)


@dataclass(frozen=True, slots=True)
class GlobalMax:
    """The rule that takes the largest event time seen anywhere, less a bound."""

    bound_ms: int

    def decide(self, snapshot: SourceSnapshot) -> Decision:
        assert isinstance(snapshot, PartitionSnapshot), "it goes by partitions"
        latest_ms = snapshot.partition_latest_ms
        return _less(int(latest_ms.max()) if latest_ms.size else NEVER, self.bound_ms)


def _less(largest: int, bound_ms: int) -> Decision:
    return Decision(None if largest == NEVER else largest - bound_ms)
