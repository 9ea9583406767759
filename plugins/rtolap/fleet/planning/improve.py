"""Local search on a small fleet: what is still outside the band, then how many bytes move.

Where disks hold a few large replicas, it matters which go. A change gives one replica another place, its old
one too, which takes its move out of the plan. The best change is made while there is one; then the best two
that are made together, such as an exchange. That begins with the plan so far, with none, and with none while
only moves are made that bring much. Last, whole plans are built move by move, many at a time (`beam`), which
finds the few replicas that fit together. The cheapest end is kept.

A byte that comes into the band is worth `_WORTH` moved ones: for less nothing moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rtolap.fleet.planning.beam import Beam, Leading
from rtolap.fleet.planning.levels import Band
from rtolap.fleet.planning.placement import NO_RACK, Placement
from rtolap.fleet.planning.transfers import Transfers
from rtolap.fleet.snapshot.model import Flags, Floats, Int32s, Int64s

CELLS_MAX = 20_000
WIDTH = 400
BEAM_CELLS_MAX = 200_000
_CHANGES_MAX = 300
_PAIRS_MAX = 60
_PAIR_CELLS_MAX = 150_000
_TRIED_MAX = 8
_WORTH = 100.0
_WORTHS = (0.7, 1.5, 4.0, 20.0, _WORTH)


def improve(
    placement: Placement, transfers: Transfers, dirs: Int64s, band: Band, *, width: int = WIDTH
) -> None:
    """Leave large fleets as they are: in them whole replicas are small beside the band. width: of the search
    by whole plans; with 0 every fleet is left."""
    held = placement.positions[np.isin(placement.log_dirs_before.ravel()[placement.positions], dirs)]
    held = held[placement.movable(held)]
    if not width or not held.size or held.size * dirs.size > CELLS_MAX:
        return
    search = _Search(placement, held, dirs, band, transfers.leading_max)
    ends = [search.run((_WORTH,)), search.begin(search.home).run((_WORTH,))]
    ends.append(search.begin(search.home).run(_WORTHS))
    best = min(ends, key=lambda end: end.cost)
    width = min(width, BEAM_CELLS_MAX // (held.size * dirs.size))
    if width:
        beam = search.begin(search.home).beam(width, best.cost)
        for changes in beam:
            end = search.begin(search.home).follow(changes)
            if end is not None and end.cost < best.cost:
                best = end
                break
    search.begin(best.at).write()


@dataclass(frozen=True, eq=False)
class _End:
    """The places at which replicas are in the end."""

    at: Int64s
    cost: float


class _Search:
    """Columns by replica; matrices of replicas and disks. Places are indexes of `dirs`."""

    def __init__(
        self, placement: Placement, held: Int64s, dirs: Int64s, band: Band, leading_max: int
    ) -> None:
        self._placement, self._held, self._dirs = placement, held, dirs
        self._partitions = held // placement.slots
        row_of = np.full(len(placement.total_bytes), -1)
        row_of[dirs] = np.arange(dirs.size)
        self.home = row_of[placement.log_dirs_before.ravel()[held]]
        self._at = row_of[placement.log_dirs.ravel()[held]]
        self._own = placement.replica_bytes.ravel()[held].astype(np.float64)
        self._copy = placement.partition_bytes[self._partitions].astype(np.float64)
        self._low, self._high = band.low_bytes[dirs].astype(float), band.high_bytes[dirs].astype(float)
        self._after = placement.after_bytes()[dirs].astype(np.float64)
        limit = np.floor(placement.disk_limit * placement.total_bytes[dirs])
        self._room: Floats = limit - (placement.used_bytes + placement.incoming_bytes)[dirs]
        self._dir_brokers: Int32s = placement.snapshot.log_dirs.brokers[dirs]
        self._dir_racks: Int32s = placement.racks[self._dir_brokers]
        self._preferred: Flags = held % placement.slots == 0
        self._leading = placement.leading.copy()
        self._leading_max = leading_max
        self._brokers = placement.brokers.copy()
        self._places = np.arange(dirs.size)
        self._goes_home: Flags = self._places == self.home[:, None]
        self._arriving: Floats = np.where(self._goes_home, self._own[:, None], self._copy[:, None])
        self._by_rule: Flags = np.zeros((held.size, dirs.size), np.bool_)
        self._may_stand: Flags = self._dir_brokers == self._dir_brokers[self.home][:, None]
        self._may_stand |= placement.allowed.by_rule[:, self._dir_brokers][placement.rules[self._partitions]]
        self._worth = _WORTH
        self._refresh(np.arange(held.size))

    def begin(self, at: Int64s) -> _Search:
        """Start from there."""
        for row in np.flatnonzero(self._at != at).tolist():
            self._shift(row, int(at[row]))
        self._refresh(np.arange(self._held.size))
        return self

    def follow(self, changes: Sequence[tuple[int, int]]) -> _End | None:
        """Make these changes, and those that gain afterwards; None where a rule forbids one."""
        for row, place in changes:
            if not self._by_rule[row, place]:
                return None
            self._put(row, place)
        return self.run((_WORTH,)) if int(self._leading.max()) <= self._leading_max else None

    def beam(self, width: int, cost_max: float) -> list[list[tuple[int, int]]]:
        """Plans that cost less, the cheapest first, as lists of changes.

        Level by level every plan that is kept gets one more move, in each way that there is, and the best
        `width` are kept: by what they move and what they must still move at least. A replica moves once.
        """
        leading = Leading(self._dir_brokers, self._leading, self._leading_max, self._preferred)
        plans = Beam(self._after, self._room, self._low, self._high, _WORTH, leading)
        allowed = self._by_rule & (self._room >= self._arriving) & ~self._goes_home
        return plans.search(allowed, self.home, self._copy, self._own, width, cost_max)

    def run(self, worths: Sequence[float]) -> _End:
        """worths: moved bytes for one that comes into the band; pairs are looked for with the last."""
        pairs = 0
        for self._worth in worths:
            for _ in range(_CHANGES_MAX):
                gains = self._gains()
                best = int(np.argmax(gains))
                if gains.ravel()[best] > 0:
                    self._put(*divmod(best, self._dirs.size))
                elif self._worth == worths[-1] and pairs < _PAIRS_MAX and self._pair(gains):
                    pairs += 1
                else:
                    break
        moved = float(self._copy[self._at != self.home].sum())
        outside = float(self._outside(self._after, self._low, self._high).sum())
        return _End(self._at.copy(), _WORTH * outside + moved)

    def write(self) -> None:
        """Bring the placement to what was found."""
        placement = self._placement
        changed = np.flatnonzero(self._dirs[self._at] != placement.log_dirs.ravel()[self._held])
        for row in changed.tolist():
            if placement.log_dirs.ravel()[self._held[row]] != self._dirs[self.home[row]]:
                placement.restore(int(self._held[row]))
        for row in changed[self._at[changed] != self.home[changed]].tolist():
            placement.move(self._held[row : row + 1], int(self._dirs[self._at[row]]))

    def _outside(self, used: Floats, low: Floats, high: Floats) -> Floats:
        found: Floats = np.maximum(used - high, 0) + np.maximum(low - used, 0)
        return found

    def _leaving(self) -> Floats:
        return np.where(self._at == self.home, self._own, self._copy)

    def _bytes_more(self) -> Floats:
        away = (self._at != self.home)[:, None]
        copies = self._copy[:, None]
        return np.where(~away & ~self._goes_home, copies, 0.0) - np.where(away & self._goes_home, copies, 0.0)

    def _gains(self) -> Floats:
        """Return the gain of each replica at each place; -inf where it may not be, 0 where it is."""
        at, low, high, after = self._at, self._low, self._high, self._after
        now = self._outside(after, low, high)
        freed = now[at] - self._outside(after[at] - self._leaving(), low[at], high[at])
        filled = self._outside(after + self._arriving, low, high) - now
        gains = self._worth * (freed[:, None] - filled) - self._bytes_more()
        gains[~self._allowed()] = -np.inf
        gains[np.arange(at.size), at] = 0.0
        return np.where(np.abs(gains) < 1.0, 0.0, gains)

    def _allowed(self) -> Flags:
        fits = self._goes_home | (self._room >= self._arriving)
        own_broker = self._dir_brokers == self._dir_brokers[self._at][:, None]
        leads = (
            ~self._preferred[:, None] | own_broker | (self._leading[self._dir_brokers] < self._leading_max)
        )
        allowed: Flags = fits & leads & self._by_rule
        return allowed

    def _pair(self, gains: Floats) -> bool:
        """Make the best two changes, of different partitions, that gain together; false where none do."""
        flat = gains.ravel()
        rows, places = np.divmod(np.arange(flat.size), self._dirs.size)
        firsts = np.flatnonzero(np.isfinite(flat) & (places != self._at[rows]))
        most = max(_PAIR_CELLS_MAX // flat.size, 1)
        firsts = firsts[np.argsort(-flat[firsts], kind="stable")[:most]]
        if not firsts.size:
            return False
        together = flat[firsts, None] + self._second_gains(rows[firsts], places[firsts])
        for pick in np.argsort(-together.ravel(), kind="stable")[:_TRIED_MAX].tolist():
            first, second = divmod(pick, flat.size)
            if together[first, second] < 1.0:
                return False
            row, place = int(rows[firsts[first]]), int(places[firsts[first]])
            came_from = int(self._at[row])
            self._put(row, place)
            other, there = divmod(second, self._dirs.size)
            if self._allowed()[other, there]:
                self._put(other, there)
                return True
            self._put(row, came_from)
        return False

    def _second_gains(self, rows: Int64s, places: Int64s) -> Floats:
        """A row for each first change, in it the gains of all others after it. Room is that of before it."""
        count, at = rows.size, self._at
        after = np.repeat(self._after[None, :], count, axis=0)
        each = np.arange(count)
        after[each, at[rows]] -= self._leaving()[rows]
        after[each, places] += self._arriving[rows, places]
        low, high = self._low, self._high
        now = self._outside(after, low, high)
        freed = now[:, at] - self._outside(after[:, at] - self._leaving(), low[at], high[at])
        filled = self._outside(after[:, None, :] + self._arriving, low, high) - now[:, None, :]
        gains = self._worth * (freed[:, :, None] - filled) - self._bytes_more()
        gains[:, ~self._by_rule] = -np.inf
        gains[:, np.arange(at.size), at] = -np.inf
        gains[self._partitions[rows][:, None] == self._partitions] = -np.inf
        return gains.reshape(count, -1)

    def _put(self, row: int, place: int) -> None:
        self._shift(row, place)
        self._refresh(np.flatnonzero(self._partitions == self._partitions[row]))

    def _shift(self, row: int, place: int) -> None:
        at, home, copy = int(self._at[row]), int(self.home[row]), self._copy[row]
        self._after[at] -= self._own[row] if at == home else copy
        self._after[place] += self._arriving[row, place]
        self._room[at] += 0.0 if at == home else copy
        self._room[place] -= 0.0 if place == home else copy
        if self._preferred[row]:
            self._leading[self._dir_brokers[at]] -= 1
            self._leading[self._dir_brokers[place]] += 1
        self._at[row] = place
        self._brokers.ravel()[self._held[row]] = self._dir_brokers[place]

    def _refresh(self, rows: Int64s) -> None:
        """Find the places these replicas may go to, by brokers, racks and placement rules."""
        brokers = self._brokers[self._partitions[rows]]
        racks = self._placement.racks[brokers]
        own = self._dir_brokers[self._at[rows]]
        own_rack = self._placement.racks[own]
        before = self._placement.brokers_before[self._partitions[rows]]
        held = (before[:, :, None] == self._dir_brokers).any(axis=1)
        held &= self._dir_brokers != self._dir_brokers[self.home[rows]][:, None]
        held |= (brokers[:, :, None] == self._dir_brokers).any(axis=1)
        counts = (racks[:, :, None] == self._dir_racks).sum(axis=1)
        own_count = np.where(own_rack == NO_RACK, 0, (racks == own_rack[:, None]).sum(axis=1))
        same_rack = self._dir_racks == own_rack[:, None]
        same_broker = self._dir_brokers == own[:, None]
        comes = ~held & (same_rack | (counts < own_count[:, None])) & self._may_stand[rows]
        self._by_rule[rows] = same_broker | comes
