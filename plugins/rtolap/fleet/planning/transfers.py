"""Move replicas from disks that hold too much to idle ones, the idlest first.

Every disk that gives is visited once, the fullest first; for it those that get, a disk of the same broker
first, which costs no network, then the idlest. Of each pair as many replicas go as both allow, the largest
first, so that moves are few; what is chosen from thousands of replicas is chosen by columns. Replicas that
were moved stay where they came to: no byte moves twice.

Rules that hold for each replica: the target takes replicas and has room below the limit whatever leaves it;
the topic may stand on its broker, which holds none of the partition, nor did before; the target's rack holds
fewer of it than the rack that is left, unless it is the same; and the broker that leads most by preference
never leads more than before.
"""

from __future__ import annotations

import numpy as np

from rtolap.fleet.planning.placement import Placement, counts_in_rack
from rtolap.fleet.snapshot.model import Flags, Int32s, Int64s


class Transfers:
    """Transfers between disks. No broker gets to lead more than `leading_max` partitions by preference."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        flat = placement.log_dirs_before.ravel()
        replicas = placement.positions[flat[placement.positions] >= 0]
        replicas = replicas[placement.worth_moving(replicas)]
        self._replicas = replicas[np.argsort(flat[replicas], kind="stable")]
        self._first = np.searchsorted(flat[self._replicas], np.arange(len(placement.total_bytes) + 1))
        self.leading_max = int(placement.leading.max(initial=0))

    def run(self, sources: Int64s, down_bytes: Int64s, targets: Int64s, up_bytes: Int64s) -> None:
        """Move bytes from sources to targets down and up to the given numbers, as far as rules and whole
        replicas allow.
        """
        after = self.placement.after_bytes()
        total = np.maximum(self.placement.total_bytes, 1)
        order = np.lexsort((sources, -(after[sources] / total[sources])))
        for source in sources[order].tolist():
            self._skim(source, int(down_bytes[source]), targets, up_bytes)

    def within(self, group: Int64s, down_bytes: Int64s, up_bytes: Int64s) -> None:
        """Run as `run` does, between the disks of a group."""
        after = self.placement.after_bytes()
        self.run(
            group[after[group] > down_bytes[group]],
            down_bytes,
            group[after[group] < up_bytes[group]],
            up_bytes,
        )

    def unmoved(self, log_dir: int) -> Int64s:
        """Return the movable replicas that were there before the plan, the largest first."""
        here: Int64s = self._replicas[self._first[log_dir] : self._first[log_dir + 1]]
        here = here[self.placement.log_dirs.ravel()[here] == log_dir]
        sizes = self.placement.partition_bytes[here // self.placement.slots]
        return here[np.argsort(-sizes, kind="stable")]

    def _skim(self, source: int, floor_bytes: int, targets: Int64s, up_bytes: Int64s) -> None:
        placement = self.placement
        need = placement.after_of(source) - floor_bytes
        positions = self.unmoved(source)
        if need <= 0 or not positions.size or not targets.size:
            return
        left = Leaving(placement, positions)
        for target in self._in_order(source, targets).tolist():
            room = min(int(up_bytes[target]) - placement.after_of(target), placement.room_of(target))
            if min(need, room) < left.smallest_bytes:
                continue
            chosen = left.choose(target, min(need, room), self.leading_max)
            if chosen.size:
                need -= int(placement.replica_bytes.ravel()[chosen].sum())
                placement.move(chosen, target)
            if need <= 0:
                return

    def _in_order(self, source: int, targets: Int64s) -> Int64s:
        after, brokers = self.placement.after_bytes(), self.placement.snapshot.log_dirs.brokers
        share = after[targets] / np.maximum(self.placement.total_bytes[targets], 1)
        return targets[np.lexsort((targets, share, brokers[targets] != brokers[source]))]


class Leaving:
    """Replicas of one disk that may leave it, at least one, the largest first."""

    def __init__(self, placement: Placement, positions: Int64s) -> None:
        self._placement = placement
        self._positions = positions
        partitions = positions // placement.slots
        self._sizes = placement.partition_bytes[partitions]
        self._brokers: Int32s = placement.brokers[partitions]
        self._before: Int32s = placement.brokers_before[partitions]
        self._racks: Int32s = placement.racks[self._brokers]
        self._rules: Int32s = placement.rules[partitions]
        self._own = placement.brokers.ravel()[positions]
        self._own_racks = placement.racks[self._own]
        self._own_counts = counts_in_rack(self._racks, self._own_racks)
        self._preferred: Flags = positions % placement.slots == 0
        self.smallest_bytes = max(int(self._sizes[-1]), 1)
        self._here: Flags = np.ones(positions.size, np.bool_)

    def allowed(self, log_dir: int) -> Flags:
        """Return the replicas that brokers, racks and placement rules allow to move to the log directory."""
        broker = int(self._placement.snapshot.log_dirs.brokers[log_dir])
        rack = self._placement.racks[broker]
        same_broker = self._own == broker
        replicas = ((self._brokers == broker) | (self._before == broker)).any(axis=1)
        counts = (self._racks == rack).sum(axis=1)
        fewer = (self._own_racks == rack) | (counts < self._own_counts)
        comes = ~replicas & fewer
        by_rule = self._placement.allowed.by_rule[:, broker]
        if not by_rule.all():
            comes &= by_rule[self._rules]
        found: Flags = self._here & (same_broker | comes)
        return found

    def on_broker(self, log_dir: int) -> Flags:
        """Return the replicas that are already on the log directory's broker."""
        found: Flags = self._own == self._placement.snapshot.log_dirs.brokers[log_dir]
        return found

    def choose(self, log_dir: int, amount_bytes: int, leading_max: int) -> Int64s:
        """Take replicas, the largest first, that hold at most so many bytes together."""
        allowed = self.allowed(log_dir)
        broker = int(self._placement.snapshot.log_dirs.brokers[log_dir])
        if (self._own != broker).any():
            leads = allowed & self._preferred
            spare = leading_max - int(self._placement.leading[broker])
            allowed &= ~leads | (np.cumsum(leads) <= spare)
        rows = np.flatnonzero(allowed)
        rows = rows[largest_first(self._sizes[rows], amount_bytes)]
        self._here[rows] = False
        return self._positions[rows]


def largest_first(sizes: Int64s, amount: int) -> Int64s:
    """Return rows of descending sizes, taken greedily while their sum is at most `amount`: runs of neighbours
    at once, then on to the next that fits.
    """
    chosen: list[Int64s] = []
    begin, ascending = 0, -sizes
    while begin < sizes.size:
        begin = max(begin, int(np.searchsorted(ascending, -amount, side="left")))
        sums = np.cumsum(sizes[begin:])
        count = int(np.searchsorted(sums, amount, side="right"))
        if count == 0:
            break
        chosen.append(np.arange(begin, begin + count))
        amount -= int(sums[count - 1])
        begin += count
    return np.concatenate(chosen) if chosen else np.zeros(0, np.int64)
