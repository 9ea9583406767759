"""The place of every replica while a plan is being made: now, planned, and where it may stand at all.

Replicas stand in a matrix: a row per partition, in it a slot per replica by preference, UNKNOWN where there
is none. A slot keeps its place when its replica moves, so that leaders' preference stays as it is. Bytes
that a plan brings to a disk count at once, those that it takes away are counted apart: whatever order moves
are made in, no disk holds more than `used_bytes` and `incoming_bytes`. Where that is too much, `stages` finds
an order in which what leaves makes room.

Where topics may stand planners are told from outside, as a table: rules are few, so brokers are kept by rule
and rules by topic. A replica that is moved comes only to a broker where its topic may stand. One that stands
wrong already may stay, change its disk there, or go to where it may stand: never to another wrong place.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rtolap.fleet.snapshot.model import (
    UNKNOWN,
    BrokerState,
    Flags,
    FleetSnapshot,
    Floats,
    Int32s,
    Int64s,
    ReplicaState,
)

DISK_LIMIT = 0.9
NO_RACK = -1


@dataclass(frozen=True, eq=False)
class AllowedBrokers:
    """Brokers that topics may come to.

    Attributes:
        rules: For each topic, a row of `by_rule`.
        by_rule: Rules by brokers of the snapshot: True where the rule allows the broker.
    """

    rules: Int32s
    by_rule: Flags

    def rules_of_partitions(self, snapshot: FleetSnapshot) -> Int32s:
        return self.rules[snapshot.partitions.topics]

    def broker_classes(self) -> Int32s:
        """Return a number per broker, the same where the same rules allow them."""
        _, classes = np.unique(self.by_rule, axis=1, return_inverse=True)
        return classes.ravel().astype(np.int32)


def everywhere(snapshot: FleetSnapshot) -> AllowedBrokers:
    """Return the table of a fleet without placement rules."""
    return AllowedBrokers(
        np.zeros(len(snapshot.topics), np.int32), np.ones((1, len(snapshot.brokers)), np.bool_)
    )


class Placement:
    """The present placement of replicas, which a planner changes.

    Attributes:
        brokers: Rows of brokers by partition and slot.
        log_dirs: Rows of log directories by partition and slot.
        replica_bytes: Size of each replica, as far as known.
        partition_bytes: Size of a new copy: that of the largest known replica.
        able: Brokers that serve.
        takes: Log directories that may receive replicas.
        fixed: Partitions under a running move, which stay as they are.
        copied: Partitions with a leader, from which a copy can be made.
        racks: A number per broker. A broker without a rack is a rack of its own, and an absent one is in
            none.
        racks_able: Number of racks whose brokers serve.
        allowed: Brokers that topics may come to.
        rules: For each partition, its row of `allowed.by_rule`.
    """

    def __init__(
        self,
        snapshot: FleetSnapshot,
        *,
        disk_limit: float = DISK_LIMIT,
        slots: int = 1,
        allowed: AllowedBrokers | None = None,
    ) -> None:
        """Take the snapshot's placement. `slots` is the least number of slots for each partition. Without
        `allowed`, every topic may stand on every broker."""
        self.snapshot = snapshot
        self.disk_limit = disk_limit
        partitions, replicas = snapshot.partitions, snapshot.replicas
        self.factors: Int64s = np.diff(partitions.first_replicas)
        self.slots = max(int(self.factors.max(initial=1)), slots)
        self.positions: Int64s = (
            replicas.partitions.astype(np.int64) * self.slots
            + np.arange(len(replicas))
            - partitions.first_replicas[replicas.partitions]
        )
        self.brokers = self._matrix(replicas.brokers)
        self.log_dirs = self._matrix(replicas.log_dirs)
        self.brokers_before, self.log_dirs_before = self.brokers.copy(), self.log_dirs.copy()
        self.partition_bytes: Int64s = np.full(len(partitions), UNKNOWN, np.int64)
        np.maximum.at(self.partition_bytes, replicas.partitions, replicas.size_bytes)
        own = np.where(
            replicas.size_bytes == UNKNOWN, self.partition_bytes[replicas.partitions], replicas.size_bytes
        )
        self.replica_bytes = np.zeros((len(partitions), self.slots), np.int64)
        self.replica_bytes.ravel()[self.positions] = np.maximum(own, 0)
        running = (replicas.states != ReplicaState.STAYING) | (replicas.future_log_dirs != UNKNOWN)
        self.fixed: Flags = np.zeros(len(partitions), np.bool_)
        self.fixed[replicas.partitions[running]] = True
        self.copied: Flags = partitions.leaders != UNKNOWN
        self.able: Flags = snapshot.brokers.states == BrokerState.ALIVE
        self.allowed = everywhere(snapshot) if allowed is None else allowed
        self.rules: Int32s = self.allowed.rules_of_partitions(snapshot)
        self.racks = rack_numbers(snapshot)
        self.racks_able = int(np.unique(self.racks[:-1][self.able]).size)
        self._open_disks(own)
        self.leading: Int64s = np.bincount(self.brokers[self.factors > 0, 0], minlength=len(snapshot.brokers))

    def _matrix(self, column: Int32s) -> Int32s:
        matrix = np.full((len(self.factors), self.slots), UNKNOWN, np.int32)
        matrix.ravel()[self.positions] = column
        return matrix

    def _open_disks(self, own: Int64s) -> None:
        dirs, replicas = self.snapshot.log_dirs, self.snapshot.replicas
        self.total_bytes = dirs.total_bytes
        self.known: Flags = (dirs.total_bytes > 0) & (dirs.usable_bytes != UNKNOWN) & ~dirs.offline
        self.used_bytes: Int64s = np.where(self.known, dirs.total_bytes - dirs.usable_bytes, 0)
        self.takes: Flags = self.known & ~dirs.cordoned & self.able[dirs.brokers]
        self.incoming_bytes: Int64s = np.zeros(len(dirs), np.int64)
        self.outgoing_bytes: Int64s = np.zeros(len(dirs), np.int64)
        # What running moves still bring takes its room from a plan.
        adding = (replicas.states == ReplicaState.ADDING) & (replicas.log_dirs != UNKNOWN)
        rest = np.maximum(self.partition_bytes[replicas.partitions] - replicas.size_bytes, 0)
        np.add.at(self.incoming_bytes, replicas.log_dirs[adding], rest[adding])
        moving = replicas.future_log_dirs != UNKNOWN
        rest = np.maximum(own - np.maximum(replicas.future_bytes, 0), 0)
        np.add.at(self.incoming_bytes, replicas.future_log_dirs[moving], rest[moving])
        self.running_bytes: Int64s = self.incoming_bytes.copy()

    def room_bytes(self) -> Int64s:
        """Return the bytes that each disk may still get below the limit, whatever leaves it meanwhile."""
        limit = (self.disk_limit * self.total_bytes).astype(np.int64)
        room = limit - self.used_bytes - self.incoming_bytes
        return np.where(self.takes, np.maximum(room, 0), 0)

    def incoming_max_bytes(self) -> Int64s:
        """Return the bytes that may come to each disk, what runs already included, whatever leaves it."""
        limit = (self.disk_limit * self.total_bytes).astype(np.int64)
        free = np.maximum(limit - self.used_bytes - self.running_bytes, 0)
        return self.running_bytes + np.where(self.takes, free, 0)

    def room_of(self, log_dir: int) -> int:
        """Return the element of `room_bytes` for a log directory."""
        if not self.takes[log_dir]:
            return 0
        limit = int(self.disk_limit * self.total_bytes[log_dir])
        return max(limit - int(self.used_bytes[log_dir] + self.incoming_bytes[log_dir]), 0)

    def after_of(self, log_dir: int) -> int:
        """Return the element of `after_bytes` for a log directory."""
        filled_bytes = self.used_bytes[log_dir] + self.incoming_bytes[log_dir] - self.outgoing_bytes[log_dir]
        return int(filled_bytes)

    def after_bytes(self) -> Int64s:
        """Return the bytes that each disk holds when the plan is done."""
        return self.used_bytes + self.incoming_bytes - self.outgoing_bytes

    def utilisation(self) -> Floats:
        """Return the share of each disk that is used when the plan is done, NaN where it is not known."""
        share = np.full(len(self.total_bytes), np.nan)
        np.divide(self.after_bytes(), self.total_bytes, out=share, where=self.known)
        return share

    def movable(self, positions: Int64s) -> Flags:
        """Return replicas that a plan may move: nothing runs on their partition, and a copy can be made of
        it.
        """
        partitions = positions // self.slots
        movable: Flags = self.partition_bytes[partitions] != UNKNOWN
        movable &= ~self.fixed[partitions] & self.copied[partitions]
        return movable

    def worth_moving(self, positions: Int64s) -> Flags:
        """Tell which of these replicas a plan may move to make disks more even: a move of nothing does
        not."""
        worth: Flags = self.movable(positions) & (self.partition_bytes[positions // self.slots] > 0)
        return worth

    def move(self, positions: Int64s, log_dir: int) -> None:
        """Bring these replicas to that directory, on its broker."""
        brokers, dirs = self.brokers.ravel(), self.log_dirs.ravel()
        partitions, to = positions // self.slots, self.snapshot.log_dirs.brokers[log_dir]
        old = dirs[positions]
        freed = old != UNKNOWN
        np.add.at(self.outgoing_bytes, old[freed], self.replica_bytes.ravel()[positions[freed]])
        self.incoming_bytes[log_dir] += int(self.partition_bytes[partitions].sum())
        preferred = positions[positions % self.slots == 0]
        np.subtract.at(self.leading, brokers[preferred], 1)
        self.leading[to] += preferred.size
        brokers[positions] = to
        dirs[positions] = log_dir

    def restore(self, position: int) -> None:
        """Take back the move of this replica."""
        brokers, dirs = self.brokers.ravel(), self.log_dirs.ravel()
        home = int(self.log_dirs_before.ravel()[position])
        self.incoming_bytes[dirs[position]] -= int(self.partition_bytes[position // self.slots])
        self.outgoing_bytes[home] -= int(self.replica_bytes.ravel()[position])
        if position % self.slots == 0:
            self.leading[brokers[position]] -= 1
            self.leading[self.brokers_before.ravel()[position]] += 1
        brokers[position] = self.brokers_before.ravel()[position]
        dirs[position] = home

    def adopt(self, brokers: Int32s, log_dirs: Int32s) -> None:
        """Take other places of all replicas, in the same slots. A replica that stays on its disk in another
        slot of its partition costs nothing."""
        stays = np.zeros(brokers.shape, np.bool_)
        left = self.brokers_before != UNKNOWN
        for slot in range(self.slots):
            same = (brokers == self.brokers_before[:, slot, None]) & (brokers != UNKNOWN)
            same &= (log_dirs == self.log_dirs_before[:, slot, None]) | (log_dirs == UNKNOWN)
            stays |= same
            left[:, slot] &= ~same.any(axis=1)
        self.brokers, self.log_dirs = brokers.copy(), log_dirs.copy()
        self.incoming_bytes, self.outgoing_bytes = (
            self.running_bytes.copy(),
            np.zeros_like(self.running_bytes),
        )
        coming = (brokers != UNKNOWN) & ~stays & (log_dirs != UNKNOWN)
        rows = np.nonzero(coming)[0]
        np.add.at(self.incoming_bytes, log_dirs[coming], np.maximum(self.partition_bytes[rows], 0))
        left &= self.log_dirs_before != UNKNOWN
        np.add.at(self.outgoing_bytes, self.log_dirs_before[left], self.replica_bytes[left])
        present = self.factors > 0
        self.leading = np.bincount(brokers[present, 0], minlength=len(self.snapshot.brokers))

    def add_replica(self, partition: int, log_dir: int) -> None:
        """Give the partition one more replica, the last by preference."""
        slot = int(self.factors[partition])
        self.brokers[partition, slot] = self.snapshot.log_dirs.brokers[log_dir]
        self.log_dirs[partition, slot] = log_dir
        self.incoming_bytes[log_dir] += int(self.partition_bytes[partition])
        self.factors[partition] += 1

    def changed(self) -> Int64s:
        """Return partitions that are not as they were."""
        other = (self.brokers != self.brokers_before) | (self.log_dirs != self.log_dirs_before)
        return np.flatnonzero(other.any(axis=1))


def rack_numbers(snapshot: FleetSnapshot) -> Int32s:
    """Return a number per broker, and one more for the row UNKNOWN, which stands in no rack."""
    names = {name: n for n, name in enumerate(sorted({r for r in snapshot.brokers.racks if r is not None}))}
    alone = len(names)
    states = snapshot.brokers.states
    numbers = [
        names[rack] if rack is not None else NO_RACK if states[row] == BrokerState.ABSENT else alone + row
        for row, rack in enumerate(snapshot.brokers.racks)
    ]
    return np.array([*numbers, NO_RACK], np.int32)


def counts_in_rack(racks: Int32s, rack: Int32s) -> Int64s:
    """Count the replicas in a rack for each partition. `racks` has a row of rack numbers per partition."""
    found: Int64s = (racks == rack[:, None]).sum(axis=1)
    return np.where(rack == NO_RACK, 0, found)


def distinct_racks(racks: Int32s) -> Int64s:
    """Count the racks that each row of rack numbers names."""
    ordered = np.sort(racks, axis=1)
    first = np.ones(ordered.shape, np.bool_)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    found: Int64s = (first & (ordered != NO_RACK)).sum(axis=1)
    return found


def fullest_rack(racks: Int32s) -> Int64s:
    """Count, for each row of rack numbers, how often it names the rack that it names most."""
    most = np.zeros(len(racks), np.int64)
    for slot in range(racks.shape[1]):
        same = (racks == racks[:, slot, None]).sum(axis=1)
        most = np.maximum(most, np.where(racks[:, slot] == NO_RACK, 0, same))
    return most
