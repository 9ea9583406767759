"""Finds a place for one replica that must go somewhere: the idlest disk that the rules allow.

Of the directories that take it, on brokers where its topic may stand, those are looked at whose rack would
hold the fewest replicas of the partition, and of these the one that is least full with it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rtolap.base.errors import ImpossiblePlan
from rtolap.fleet.planning.placement import NO_RACK, Placement
from rtolap.fleet.snapshot.model import Flags, Int64s


@dataclass(frozen=True, eq=False)
class _Choice:
    """Directories, each with a reason against it or none."""

    taken: Flags
    forbidden: Flags
    holding: Flags
    racks: Flags
    full: Flags

    @property
    def allowed(self) -> Flags:
        return self.taken & ~self.forbidden & ~self.holding & ~self.racks & ~self.full


class IdlestDisks:
    """The disks with the most room. `barred` directories get nothing of this plan."""

    def __init__(self, placement: Placement, barred: Flags) -> None:
        self._placement = placement
        self._takes = placement.takes & ~barred
        self._brokers = placement.snapshot.log_dirs.brokers
        self._racks = placement.racks[self._brokers]
        self._may_stand: Flags = placement.allowed.by_rule[:, self._brokers]
        self._room: Int64s = placement.room_bytes()
        self._after: Int64s = placement.after_bytes()

    def replace(self, position: int, goal: str, *, beside: bool = False) -> int:
        """Move the replica to another broker, with `beside` to its own too. Raises ImpossiblePlan, with what
        stands against each disk."""
        placement = self._placement
        partition = position // placement.slots
        own = int(placement.racks[placement.brokers.ravel()[position]])
        counts, holders = self._replica_counts(partition)
        leaving = int(counts[own]) if own != NO_RACK else self._most(partition, counts)
        there = counts[self._racks]
        forbidden = ~self._may_stand[placement.rules[partition]]
        if beside:
            others = self._brokers != placement.brokers.ravel()[position]
            holders, forbidden = holders & others, forbidden & others
        worse = (self._racks != own) & (there >= leaving)
        after = there + (self._racks != own)
        choice = _Choice(self._takes, forbidden, holders, worse, self._full(partition))
        log_dir = self._best(partition, choice, after, goal)
        placement.move(np.array([position]), log_dir)
        self._note(partition, log_dir)
        return log_dir

    def spread(self, position: int, goal: str) -> int:
        """Move the replica to a rack that has none of the partition."""
        partition = position // self._placement.slots
        log_dir = self._in_new_rack(partition, goal)
        self._placement.move(np.array([position]), log_dir)
        self._note(partition, log_dir)
        return log_dir

    def another(self, partition: int, goal: str) -> int:
        """Add a replica in a rack that has none of the partition."""
        log_dir = self._in_new_rack(partition, goal)
        self._placement.add_replica(partition, log_dir)
        self._note(partition, log_dir)
        return log_dir

    def beside(self, position: int, share_max: float) -> bool:
        """Move the replica to another disk of its broker, if one is below that share with it."""
        placement = self._placement
        partition = position // placement.slots
        size = int(placement.partition_bytes[partition])
        broker = placement.brokers.ravel()[position]
        with_it = (self._after + size) / np.maximum(placement.total_bytes, 1)
        allowed = self._takes & (self._brokers == broker) & (self._room >= size) & (with_it <= share_max)
        if not allowed.any():
            return False
        log_dir = int(np.argmin(np.where(allowed, with_it, np.inf)))
        placement.move(np.array([position]), log_dir)
        self._note(partition, log_dir)
        return True

    def _in_new_rack(self, partition: int, goal: str) -> int:
        counts, holders = self._replica_counts(partition)
        there = counts[self._racks]
        forbidden = ~self._may_stand[self._placement.rules[partition]]
        choice = _Choice(self._takes, forbidden, holders, there > 0, self._full(partition))
        return self._best(partition, choice, there, goal)

    def _replica_counts(self, partition: int) -> tuple[Int64s, Flags]:
        """Return replicas of the partition by rack, and the directories whose broker has one."""
        placement = self._placement
        brokers = placement.brokers[partition]
        brokers = brokers[brokers >= 0]
        racks = placement.racks[brokers]
        counts = np.bincount(racks[racks != NO_RACK], minlength=int(placement.racks.max(initial=0)) + 1)
        holders = np.zeros(len(placement.snapshot.brokers) + 1, np.bool_)
        holders[brokers] = True
        holders[placement.brokers_before[partition]] = True  # no replica comes where another of it leaves
        return counts, holders[self._brokers]

    def _most(self, partition: int, counts: Int64s) -> int:
        """Count how many a rack may hold where one is replaced whose rack nobody knows."""
        even = -(-int(self._placement.factors[partition]) // max(self._placement.racks_able, 1))
        return max(int(counts.max(initial=0)), even)

    def _full(self, partition: int) -> Flags:
        full: Flags = self._room < self._placement.partition_bytes[partition]
        return full

    def _note(self, partition: int, log_dir: int) -> None:
        size = self._placement.partition_bytes[partition]
        self._room[log_dir] -= size
        self._after[log_dir] += size

    def _best(self, partition: int, choice: _Choice, rack_counts: Int64s, goal: str) -> int:
        allowed = np.flatnonzero(choice.allowed)
        if not allowed.size:
            raise self._impossible(partition, choice, goal)
        fewest = allowed[rack_counts[allowed] == rack_counts[allowed].min()]
        size = self._placement.partition_bytes[partition]
        share = (self._after[fewest] + size) / self._placement.total_bytes[fewest]
        return int(fewest[int(np.argmin(share))])

    def _impossible(self, partition: int, choice: _Choice, goal: str) -> ImpossiblePlan:
        snapshot = self._placement.snapshot
        topic = snapshot.topics.names[snapshot.partitions.topics[partition]]
        name = f"{topic}-{snapshot.partitions.numbers[partition]}"
        size = int(self._placement.partition_bytes[partition])
        free = choice.taken & ~choice.forbidden
        against = [
            (int((~choice.taken).sum()), "take no replicas"),
            (int((choice.taken & choice.forbidden).sum()), "are of brokers where its topic may not stand"),
            (int((free & choice.holding).sum()), "are of brokers that hold it"),
            (
                int((free & ~choice.holding & choice.racks).sum()),
                "are in racks that would hold it too often",
            ),
            (
                int((free & ~choice.holding & ~choice.racks & choice.full).sum()),
                f"would be above {self._placement.disk_limit:.0%} with it",
            ),
        ]
        return ImpossiblePlan(
            f"{goal}: there is no place for a replica of {name} ({size} bytes)",
            expected="a log directory that takes it",
            found=", ".join(f"{count} that {reason}" for count, reason in against if count)
            or "no log directory",
        )
