"""A small fleet is improved replica by replica: first the part outside the band, then the bytes that move.

Where disks hold a few large replicas, it matters which go, and which go together; they are looked for by
simulated annealing, again and again until the plan is close to the least, or so many times, and then by
`exchanges`. What was planned so far is where it begins, and what it ends with if nothing better is found. A
byte that comes into the band is worth `_WORTH` moved ones: for less nothing moves. What leaves a disk is room
on it: `stages` then finds the order.

A step gives one replica another place, or lets two exchange theirs, under all rules but one: how many
partitions a broker leads by preference is paid for, and counts only in the end. What a step costs is
accepted as long as it is small beside a temperature that falls, while bytes outside the band become dearer.
Runs take turns: from the size of a usual replica, from that of the largest, and mildly from what is best.
The numbers are drawn from a fixed seed, so that the same fleet has the same plan.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np

from rtolap.fleet.planning.exchanges import Exchanges
from rtolap.fleet.planning.levels import Band
from rtolap.fleet.planning.placement import Placement
from rtolap.fleet.planning.small_fleet import CELLS_MAX, SmallFleet, small_fleet
from rtolap.fleet.snapshot.model import Int64s

RUNS = 6
_WORTH = 1000.0
_CLOSE = 1.02
_STEPS_MAX = 80_000
_STEPS_PER_PLACE = 250
_EXCHANGES = 0.3
_HOMEWARDS = 0.45
_FIRST_WORTH = 1.5
_COLDEST = 0.02
_MILD = 0.3
_NOBODY = -1

# A replica, its new place, and the replica there that comes to the old one, or _NOBODY.
_Change = tuple[int, int, int]


def improve(
    placement: Placement, dirs: Int64s, band: Band, least_bytes: int, leading_max: int, *, runs: int = RUNS
) -> None:
    """Leave large fleets as they are: in them whole replicas are small beside the band. least_bytes: that any
    plan moves. leading_max: no broker gets to lead more partitions. runs: of the annealing, at most, and in
    proportion steps of the exchanges; with 0 every fleet is left."""
    replicas = placement.positions[np.isin(placement.log_dirs_before.ravel()[placement.positions], dirs)]
    replicas = replicas[placement.worth_moving(replicas)]
    if not runs or not replicas.size or replicas.size * dirs.size > CELLS_MAX:
        return
    place_of = np.full(len(placement.total_bytes), -1)
    place_of[dirs] = np.arange(dirs.size)
    at = place_of[placement.log_dirs.ravel()[replicas]]
    for position in replicas[at != place_of[placement.log_dirs_before.ravel()[replicas]]].tolist():
        placement.restore(position)
    fleet = small_fleet(placement, replicas, dirs, band, leading_max)
    for position, home, place in zip(
        replicas.tolist(), fleet.home, _best(fleet, at.tolist(), least_bytes, runs), strict=True
    ):
        if place != home:
            placement.move(np.array([position]), int(dirs[place]))


def _best(fleet: SmallFleet, at: list[int], least_bytes: int, runs: int) -> list[int]:
    annealing = _Annealing(fleet, _WORTH, at)
    for seed in range(runs):
        if annealing.best_cost <= _CLOSE * least_bytes:
            return annealing.best
        annealing.run(seed)
    if annealing.best_cost <= _CLOSE * least_bytes:
        return annealing.best
    exchanges = Exchanges(fleet, _WORTH, annealing.best)
    exchanges.run(runs, share=min(runs / RUNS, 1.0))
    return exchanges.best


class _Annealing:
    """The cost of a plan: bytes that move, and `worth` for each that is outside the band. best: a place for
    each replica."""

    def __init__(self, fleet: SmallFleet, worth: float, at: Sequence[int]) -> None:
        """Begin at the placement `at`, which is also the best so far."""
        self.fleet, self._worth = fleet, worth
        self._allowed = [frozenset(places) for places in fleet.places]
        self._movable = [row for row, places in enumerate(fleet.places) if len(places) > 1]
        self._members: dict[int, list[int]] = {}
        for row, partition in enumerate(fleet.partitions):
            self._members.setdefault(partition, []).append(row)
        self.best, self.best_cost, self.best_outside = list(at), math.inf, math.inf
        self._begin()
        self._note()

    def run(self, seed: int) -> None:
        """Search from the best placement so far for a better one."""
        if not self._movable:
            return
        self._begin()
        source = random.Random(seed)
        mean = sum(self.fleet.copy_bytes) / len(self.fleet.copy_bytes)
        hottest = (mean, max(self.fleet.copy_bytes), _MILD * mean)[seed % 3]
        coldest = _COLDEST * mean
        steps = min(_STEPS_MAX, _STEPS_PER_PLACE * sum(map(len, self.fleet.places)))
        for step in range(steps):
            done = step / steps
            heat = hottest * (coldest / hottest) ** done
            worth = _FIRST_WORTH * (self._worth / _FIRST_WORTH) ** done
            change = self._drawn(source)
            if change is not None:
                more = self._more(change, worth, heat)
                if (more <= 0 or source.random() < math.exp(-more / heat)) and self._fits(change):
                    self._make(change)

    def _drawn(self, source: random.Random) -> _Change | None:
        """Return a replica and its new place, and the replica there that comes to the old one, if they
        exchange.
        """
        movable, at = self._movable, self._at
        row = movable[int(source.random() * len(movable))]
        kind = source.random()
        if kind < _EXCHANGES:
            other = movable[int(source.random() * len(movable))]
            place = at[other]
            if place not in self._allowed[row] or at[row] not in self._allowed[other]:
                return None
            return None if place == at[row] else (row, place, other)
        home, places = self.fleet.home[row], self.fleet.places[row]
        place = home if kind < _HOMEWARDS else places[int(source.random() * len(places))]
        return None if place == at[row] else (row, place, _NOBODY)

    def _more(self, change: _Change, worth: float, heat: float) -> float:
        """Return what the change costs."""
        fleet, (row, place, other) = self.fleet, change
        came = self._at[row]
        left, filled, moved = self._amounts(row, came, place)
        leads = int(fleet.preferred[row])
        used_came, used_place = self._used[came] - left, self._used[place] + filled
        if other != _NOBODY:
            left, filled, more = self._amounts(other, place, came)
            used_came, used_place, moved = used_came + filled, used_place - left, moved + more
            leads -= fleet.preferred[other]
        outside = self._outside_of(came, used_came) + self._outside_of(place, used_place)
        cost = worth * (outside - self._outside[came] - self._outside[place]) + moved
        return cost + heat * self._excess_more(leads, came, place) if leads else cost

    def _amounts(self, row: int, came: int, place: int) -> tuple[float, float, float]:
        """Return bytes that leave the one, come to the other, and are moved more."""
        fleet = self.fleet
        home, copy = fleet.home[row], fleet.copy_bytes[row]
        if came == home:
            return fleet.own_bytes[row], copy, copy
        return (copy, fleet.own_bytes[row], -copy) if place == home else (copy, copy, 0.0)

    def _excess_more(self, leads: int, came: int, place: int) -> int:
        """Count the partitions that brokers lead more above what they may, where the one leads `leads`
        fewer."""
        first, second = self.fleet.brokers[came], self.fleet.brokers[place]
        if first == second:
            return 0
        if leads < 0:
            first, second = second, first
        most = self.fleet.leading_max
        return (self._leading[second] >= most) - (self._leading[first] > most)

    def _fits(self, change: _Change) -> bool:
        """Tell whether there is room, and partitions keep the rules about brokers and racks."""
        fleet, (row, place, other) = self.fleet, change
        came = self._at[row]
        left, filled, _ = self._amounts(row, came, place)
        used_came, used_place = self._used[came] - left, self._used[place] + filled
        if other != _NOBODY:
            left, filled, _ = self._amounts(other, place, came)
            used_came, used_place = used_came + filled, used_place - left
            if came != fleet.home[other] and used_came > fleet.limit_bytes[came]:
                return False
        if place != fleet.home[row] and used_place > fleet.limit_bytes[place]:
            return False
        self._at[row] = place
        if other != _NOBODY:
            self._at[other] = came
        allowed = self._keeps_rules(fleet.partitions[row])
        allowed = allowed and (other == _NOBODY or self._keeps_rules(fleet.partitions[other]))
        self._at[row] = came
        if other != _NOBODY:
            self._at[other] = place
        return allowed

    def _keeps_rules(self, partition: int) -> bool:
        fleet = self.fleet
        brokers = [fleet.brokers[self._at[member]] for member in self._members[partition]]
        brokers += fleet.others[partition]
        if len(brokers) == 1:
            return True
        racks = [rack for broker in brokers if (rack := fleet.racks[broker]) >= 0]
        distinct = set(racks)
        if len(set(brokers)) < len(brokers) or len(distinct) < fleet.racks_min[partition]:
            return False
        return len(distinct) == len(racks) or (
            max(map(racks.count, distinct)) <= fleet.in_rack_max[partition]
        )

    def _make(self, change: _Change) -> None:
        row, place, other = change
        came = self._at[row]
        self._put(row, place)
        if other != _NOBODY:
            self._put(other, came)
        self._note()

    def _put(self, row: int, place: int) -> None:
        fleet, came = self.fleet, self._at[row]
        left, filled, moved = self._amounts(row, came, place)
        self._used[came] -= left
        self._used[place] += filled
        self._moved += moved
        if fleet.preferred[row]:
            self._excess += self._excess_more(1, came, place)
            self._leading[fleet.brokers[came]] -= 1
            self._leading[fleet.brokers[place]] += 1
        for changed in (came, place):
            self._outside[changed] = self._outside_of(changed, self._used[changed])
        self._at[row] = place

    def _outside_of(self, place: int, used: float) -> float:
        high, low = self.fleet.high_bytes[place], self.fleet.low_bytes[place]
        return used - high if used > high else low - used if used < low else 0.0

    def _begin(self) -> None:
        """Bring every replica to where it is best."""
        fleet = self.fleet
        self._at = list(fleet.home)
        self._used = list(fleet.used_bytes)
        self._outside = [self._outside_of(place, used) for place, used in enumerate(self._used)]
        self._leading = list(fleet.leading)
        self._moved, self._excess = 0.0, 0
        for row, place in enumerate(self.best):
            if place != self._at[row]:
                self._put(row, place)

    def _note(self) -> None:
        if self._excess:
            return
        outside = sum(self._outside)
        cost = self._worth * outside + self._moved
        if cost < self.best_cost - 0.5:
            self.best, self.best_cost, self.best_outside = list(self._at), cost, outside
