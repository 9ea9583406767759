"""Local search on a small fleet: what is still outside the band, then how many bytes move.

Where disks hold a few large replicas, it matters which go. A change gives one replica another place, its old
one too, which takes its move out of the plan. The best change is made while there is one; then pairs, of
which the first takes a move out or leads it elsewhere. A byte that comes into the band is worth `_WORTH`
moved ones: for less gain than that nothing moves.
"""

from __future__ import annotations

import numpy as np

from rtolap.fleet.planning.levels import Band
from rtolap.fleet.planning.placement import NO_RACK, Placement
from rtolap.fleet.planning.transfers import Transfers
from rtolap.fleet.snapshot.model import Flags, Floats, Int32s, Int64s

CELLS_MAX = 30_000
_CHANGES_MAX = 200
_PAIRED_MAX = 60
_WORTH = 100.0


def improve(placement: Placement, transfers: Transfers, dirs: Int64s, band: Band) -> None:
    """Leave large fleets as they are: in them whole replicas are small beside the band."""
    held = placement.positions[np.isin(placement.log_dirs_before.ravel()[placement.positions], dirs)]
    held = held[placement.movable(held)]
    if held.size and held.size * dirs.size <= CELLS_MAX:
        search = _Search(placement, held, dirs, band, transfers.leading_max)
        search.run()
        search.write()


class _Search:
    """Columns by replica; matrices of replicas and disks. Places are indexes of `dirs`."""

    def __init__(
        self, placement: Placement, held: Int64s, dirs: Int64s, band: Band, leading_max: int
    ) -> None:
        self._placement, self._held, self._dirs = placement, held, dirs
        self._partitions = held // placement.slots
        row_of = np.full(len(placement.total_bytes), -1)
        row_of[dirs] = np.arange(dirs.size)
        self._home = row_of[placement.log_dirs_before.ravel()[held]]
        self._at = row_of[placement.log_dirs.ravel()[held]]
        self._own = placement.replica_bytes.ravel()[held].astype(np.float64)
        self._copy = placement.partition_bytes[self._partitions].astype(np.float64)
        self._low, self._high = band.low_bytes[dirs].astype(float), band.high_bytes[dirs].astype(float)
        self._after = placement.after_bytes()[dirs].astype(np.float64)
        limit = placement.disk_limit * placement.total_bytes[dirs]
        self._room: Floats = limit - (placement.used_bytes + placement.incoming_bytes)[dirs]
        self._dir_brokers: Int32s = placement.snapshot.log_dirs.brokers[dirs]
        self._dir_racks: Int32s = placement.racks[self._dir_brokers]
        self._preferred: Flags = held % placement.slots == 0
        self._leading = placement.leading.copy()
        self._leading_max = leading_max
        self._brokers = placement.brokers.copy()
        self._arriving: Floats = np.where(
            np.arange(dirs.size) == self._home[:, None], self._own[:, None], self._copy[:, None]
        )
        self._by_rule: Flags = np.zeros((held.size, dirs.size), np.bool_)
        self._refresh(np.arange(held.size))

    def run(self) -> None:
        for _ in range(_CHANGES_MAX):
            gains = self._gains()
            best = int(np.argmax(gains))
            row, place = divmod(best, self._dirs.size)
            if gains.ravel()[best] > 0:
                self._put(row, place)
            elif not self._pair():
                return

    def write(self) -> None:
        """Bring the placement to what was found."""
        for row in np.flatnonzero(self._dirs[self._at] != self._placement.log_dirs.ravel()[self._held]):
            position = self._held[row : row + 1]
            if self._placement.log_dirs.ravel()[position[0]] != self._dirs[self._home[row]]:
                self._placement.restore(int(position[0]))
            if self._at[row] != self._home[row]:
                self._placement.move(position, int(self._dirs[self._at[row]]))

    def _outside(self, used: Floats, low: Floats, high: Floats) -> Floats:
        found: Floats = np.maximum(used - high, 0) + np.maximum(low - used, 0)
        return found

    def _gains(self) -> Floats:
        """Of each replica at each place; -inf where it may not be, 0 where it is."""
        at, home = self._at, self._home
        low, high, after = self._low, self._high, self._after
        leaving = np.where(at == home, self._own, self._copy)
        now = self._outside(after, low, high)
        freed = now[at] - self._outside(after[at] - leaving, low[at], high[at])
        filled = self._outside(after + self._arriving, low, high) - now
        places = np.arange(self._dirs.size)
        goes_home = places == home[:, None]
        bytes_more = np.where((at == home)[:, None], self._copy[:, None], 0.0) - np.where(
            goes_home & (at != home)[:, None], self._copy[:, None], 0.0
        )
        gains = _WORTH * (freed[:, None] - filled) - bytes_more
        fits = goes_home | (self._room >= self._arriving)
        own_broker = self._dir_brokers == self._dir_brokers[at][:, None]
        leads = (
            ~self._preferred[:, None] | own_broker | (self._leading[self._dir_brokers] < self._leading_max)
        )
        gains[~(fits & leads & self._by_rule)] = -np.inf
        gains[np.arange(at.size), at] = 0.0
        return np.where(np.abs(gains) < 1.0, 0.0, gains)

    def _pair(self) -> bool:
        """Make the best two changes, the first of a replica that moves; false where none gains."""
        moved = np.flatnonzero(self._at != self._home)
        moved = moved[np.argsort(-self._copy[moved], kind="stable")][:_PAIRED_MAX]
        best_gain, best = 0.0, None
        for row in moved.tolist():
            gains = self._gains()[row]
            at = int(self._at[row])
            firsts = [int(self._home[row])]
            for place in firsts:
                if not np.isfinite(gains[place]):
                    continue
                self._put(row, place)
                then = self._gains()
                then[row] = 0.0
                second = int(np.argmax(then))
                gain = float(gains[place] + then.ravel()[second])
                if gain > best_gain + 1.0:
                    best_gain, best = gain, (row, place, *divmod(second, self._dirs.size))
                self._put(row, at)
        if best is None:
            return False
        self._put(best[0], best[1])
        self._put(best[2], best[3])
        return True

    def _put(self, row: int, place: int) -> None:
        at, home, copy = int(self._at[row]), int(self._home[row]), self._copy[row]
        self._after[at] -= self._own[row] if at == home else copy
        self._after[place] += self._arriving[row, place]
        self._room[at] += 0.0 if at == home else copy
        self._room[place] -= 0.0 if place == home else copy
        if self._preferred[row]:
            self._leading[self._dir_brokers[at]] -= 1
            self._leading[self._dir_brokers[place]] += 1
        self._at[row] = place
        self._brokers.ravel()[self._held[row]] = self._dir_brokers[place]
        self._refresh(np.flatnonzero(self._partitions == self._partitions[row]))

    def _refresh(self, rows: Int64s) -> None:
        """Where these replicas may go, as far as brokers and racks are concerned."""
        brokers = self._brokers[self._partitions[rows]]
        racks = self._placement.racks[brokers]
        own = self._dir_brokers[self._at[rows]]
        own_rack = self._placement.racks[own]
        before = self._placement.brokers_before[self._partitions[rows]]
        held = (before[:, :, None] == self._dir_brokers).any(axis=1)
        held &= self._dir_brokers != self._dir_brokers[self._home[rows]][:, None]
        held |= (brokers[:, :, None] == self._dir_brokers).any(axis=1)
        counts = (racks[:, :, None] == self._dir_racks).sum(axis=1)
        own_count = np.where(own_rack == NO_RACK, 0, (racks == own_rack[:, None]).sum(axis=1))
        same_rack = self._dir_racks == own_rack[:, None]
        same_broker = self._dir_brokers == own[:, None]
        self._by_rule[rows] = same_broker | (~held & (same_rack | (counts < own_count[:, None])))
