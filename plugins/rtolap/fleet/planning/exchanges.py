"""The second search of a small fleet: always the best move or exchange, with a memory of what was undone.

All moves of one replica and all exchanges of two are weighed at once, by columns, and the cheapest is made
even where it costs something; a replica does not come back to the disk that it has left for some steps. Where
a hundred steps bring nothing, the search begins again from the best, a few replicas shuffled. Annealing finds
how few bytes must move; this finds the last bytes outside the band. Steps are counted, not timed, and drawn
from a fixed seed, so the same fleet gets the same plan.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rtolap.fleet.planning.small_fleet import SmallFleet
from rtolap.fleet.snapshot.model import Flags, Floats, Int64s

STEPS_MAX = 1500
_WEIGHED_MAX = 25_000_000  # changes, in all steps: about two seconds of one core
_TENURE = 8
_SHUFFLED_AFTER = 150
_SHUFFLED_SHARE = 0.08


class Exchanges:
    """A search that exchanges replicas. `best` has a place for each replica, and is never worse than the
    placement where the search begins."""

    def __init__(self, fleet: SmallFleet, worth: float, at: Sequence[int]) -> None:
        self._fleet, self._worth = fleet, worth
        self._home = np.array(fleet.home, np.int64)
        self._rows = np.arange(self._home.size)
        places = len(fleet.brokers)
        own, copy = np.array(fleet.own_bytes, np.float64), np.array(fleet.copy_bytes, np.float64)
        at_home: Flags = np.arange(places) == self._home[:, None]
        self._bytes_at: Floats = np.where(at_home, own[:, None], copy[:, None])
        self._moved: Floats = np.where(at_home, 0.0, copy[:, None])
        self._low, self._high = np.array(fleet.low_bytes, np.float64), np.array(fleet.high_bytes, np.float64)
        leaving = np.zeros(places)
        inside = self._home < places
        np.add.at(leaving, self._home[inside], own[inside])
        self._fixed = np.array(fleet.used_bytes, np.float64) - leaving
        # Going home is no copy: a disk that is above the limit may keep what it has.
        limit, used = np.array(fleet.limit_bytes, np.float64), np.array(fleet.used_bytes, np.float64)
        self._most: Floats = np.where(at_home, np.maximum(limit, used), limit)
        self._brokers = np.array(fleet.brokers, np.int64)
        self._preferred = np.array(fleet.preferred, np.bool_)
        self._members: dict[int, list[int]] = {}
        for row, partition in enumerate(fleet.partitions):
            self._members.setdefault(partition, []).append(row)
        self._partitions = np.array(fleet.partitions, np.int64)
        self._static = np.zeros((self._home.size, places), np.bool_)
        for row, allowed in enumerate(fleet.places):
            self._static[row, list(allowed)] = True
        self.best = list(at)
        self._begin(np.array(at, np.int64))
        self.best_cost = self._cost()

    @property
    def best_outside(self) -> float:
        at = np.array(self.best, np.int64)
        used = self._fixed + np.bincount(at, self._bytes_at[self._rows, at], minlength=self._fixed.size)
        return float(self._outside_of(used).sum())

    def keeps_rules(self) -> bool:
        """Tell whether every replica of the best stands where the others of its partition let it."""
        self._begin(np.array(self.best, np.int64))
        return bool(self._may[self._rows, self._at].all())

    def run(self, seed: int, *, share: float = 1.0, until_inside: bool = False) -> None:
        """Run a share of the steps. With `until_inside`, end at the first placement with nothing outside."""
        rng = np.random.default_rng(seed)
        most = min(STEPS_MAX, _WEIGHED_MAX // (self._bytes_at.size + self._home.size**2))
        steps = int(most * share)
        idle = 0
        for step in range(steps):
            if not self._step(step, rng):
                idle = _SHUFFLED_AFTER
            cost = self._cost()
            if cost < self.best_cost - 0.5:
                self.best, self.best_cost, idle = self._at.tolist(), cost, 0
                if until_inside and self.best_outside < 1:
                    return
            else:
                idle += 1
            if idle >= _SHUFFLED_AFTER:
                self._begin(np.array(self.best, np.int64))
                self._shuffle(rng)
                idle = 0

    def _begin(self, at: Int64s) -> None:
        self._at = at
        self._used = self._fixed + np.bincount(at, self._bytes_at[self._rows, at], minlength=self._fixed.size)
        leads = self._brokers[at[self._preferred]]
        self._leading = np.array(self._fleet.led_elsewhere, np.int64) + np.bincount(
            leads, minlength=len(self._fleet.led_elsewhere)
        )
        self._tabu = np.zeros(self._bytes_at.shape, np.int64)
        self._may = self._static.copy()
        for partition in self._members:
            self._allow(partition)

    def _shuffle(self, rng: np.random.Generator) -> None:
        for row in rng.permutation(self._home.size)[: max(2, int(self._home.size * _SHUFFLED_SHARE))]:
            fits = self._may[row] & (self._used + self._bytes_at[row] <= self._most[row])
            fits &= self._leads_fit()[self._brokers] | ~self._preferred[row]
            open_places = np.flatnonzero(fits)
            if open_places.size:
                self._put(int(row), int(rng.choice(open_places)))

    def _allow(self, partition: int) -> None:
        """Find where each replica of the partition may go while the others stay."""
        fleet, members = self._fleet, self._members[partition]
        others_fixed = fleet.others[partition]
        if len(members) + len(others_fixed) == 1:
            return
        for row in members:
            others = [int(self._brokers[self._at[m]]) for m in members if m != row] + others_fixed
            racks = [fleet.racks[broker] for broker in others if fleet.racks[broker] >= 0]
            distinct = set(racks)
            fullest = max(map(racks.count, distinct), default=0)
            for place in np.flatnonzero(self._static[row]).tolist():
                broker = fleet.brokers[place]
                rack = fleet.racks[broker]
                count = len(distinct) + (rack >= 0 and rack not in distinct)
                most = max(fullest, racks.count(rack) + 1 if rack >= 0 else 0)
                self._may[row, place] = (
                    broker not in others
                    and count >= fleet.racks_min[partition]
                    and most <= max(fleet.in_rack_max[partition], 1)
                )

    def _leads_fit(self) -> Flags:
        fits: Flags = self._leading < self._fleet.leading_max
        return fits

    def _outside_of(self, used: Floats) -> Floats:
        found: Floats = np.maximum(used - self._high, 0.0) + np.maximum(self._low - used, 0.0)
        return found

    def _cost(self) -> float:
        moved = float(self._moved[self._rows, self._at].sum())
        return self._worth * float(self._outside_of(self._used).sum()) + moved

    def _step(self, step: int, rng: np.random.Generator) -> bool:
        """Make the cheapest change that is open; False where none is."""
        spare = self.best_cost - 0.5 - self._cost()
        outside = self._outside_of(self._used)
        single, pair = self._singles(step, outside, spare), self._pairs(step, outside, spare)
        one, two = int(single.argmin()), int(pair.argmin())
        cheapest = min(float(single.ravel()[one]), float(pair.ravel()[two]))
        if cheapest == np.inf:
            return False
        until = step + _TENURE + int(rng.integers(0, _TENURE))
        if float(single.ravel()[one]) <= cheapest:
            row, place = divmod(one, single.shape[1])
            self._tabu[row, self._at[row]] = until
            self._put(row, place)
            return True
        row, other = divmod(two, pair.shape[1])
        here, there = int(self._at[row]), int(self._at[other])
        self._tabu[row, here] = self._tabu[other, there] = until
        self._put(row, there)
        self._put(other, here)
        return True

    def _singles(self, step: int, outside: Floats, spare: float) -> Floats:
        """Return by replica and place what the move costs, infinite where it is not open."""
        at, here = self._at, self._bytes_at[self._rows, self._at]
        there = self._used + self._bytes_at
        gains = np.maximum(there - self._high, 0.0) + np.maximum(self._low - there, 0.0) - outside
        left = self._used[at] - here
        source = np.maximum(left - self._high[at], 0.0) + np.maximum(self._low[at] - left, 0.0) - outside[at]
        cost = self._worth * (gains + source[:, None]) + self._moved - self._moved[self._rows, at][:, None]
        other_broker = self._brokers != self._brokers[at][:, None]
        closed = ~self._may | (there > self._most)
        closed |= self._preferred[:, None] & other_broker & ~self._leads_fit()[self._brokers]
        closed |= (self._tabu > step) & (cost >= spare)
        closed[self._rows, at] = True
        cost[closed] = np.inf
        return cost

    def _pairs(self, step: int, outside: Floats, spare: float) -> Floats:
        """Return by two replicas what their exchange costs, infinite where it is not open."""
        at, here = self._at, self._bytes_at[self._rows, self._at]
        # used bytes of the first's place when it holds the second in its stead
        used = self._used[at][:, None] - here[:, None] + self._bytes_at[:, at].T
        low, high = self._low[at][:, None], self._high[at][:, None]
        change = np.maximum(used - high, 0.0) + np.maximum(low - used, 0.0) - outside[at][:, None]
        moved = self._moved[:, at] - self._moved[self._rows, at][:, None]
        cost = self._worth * (change + change.T) + moved + moved.T
        may = self._may[:, at]
        tabu = self._tabu[:, at] > step
        over = used > self._most[:, at].T  # of the second, where the first is
        brokers = self._brokers[at]
        gets_lead = self._preferred[:, None] & ~self._preferred[None, :]
        gets_lead &= (brokers[:, None] != brokers[None, :]) & ~self._leads_fit()[brokers][None, :]
        closed = ~(may & may.T) | over | over.T | gets_lead | gets_lead.T
        closed |= (at[:, None] == at[None, :]) | (self._partitions[:, None] == self._partitions[None, :])
        closed |= (tabu | tabu.T) & (cost >= spare)
        cost[closed] = np.inf
        return cost

    def _put(self, row: int, place: int) -> None:
        came = int(self._at[row])
        self._used[came] -= self._bytes_at[row, came]
        self._used[place] += self._bytes_at[row, place]
        if self._preferred[row]:
            self._leading[self._brokers[came]] -= 1
            self._leading[self._brokers[place]] += 1
        self._at[row] = place
        self._allow(int(self._partitions[row]))
