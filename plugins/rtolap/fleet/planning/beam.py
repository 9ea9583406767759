"""Beam search for the few replicas whose moves fit together.

A plan is a set of moves from the fleet as it is. Each level adds one move to every plan that is kept, in each
way that is allowed, and keeps the plans with the least of: bytes moved, and bytes that are still above the
band or still missing below it, whichever are more. No plan that follows moves fewer. Many plans come to the
same by that; so what has been moved counts for a little, and those that are nearer to their end go first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rtolap.fleet.snapshot.model import Flags, Floats, Int32s, Int64s

_LEVELS_MAX = 24
_KEPT_ENDS = 20
_PROGRESS = 0.3


@dataclass(frozen=True, eq=False)
class _Plans:
    """Plans of one level, a row each. after, room: bytes by disk. used: replicas that moved. leading: by
    broker. parents: rows of the level before; rows, places: the last move."""

    after: Floats
    room: Floats
    moved: Floats
    used: Flags
    leading: Int64s
    keys: Int64s
    parents: Int64s
    rows: Int64s
    places: Int64s


@dataclass(frozen=True, eq=False)
class Leading:
    """brokers: of disks. by_broker: how many partitions each leads by preference, and may lead at most.
    preferred: replicas that stand first."""

    brokers: Int32s
    by_broker: Int64s
    most: int
    preferred: Flags


class Beam:
    """after, room, low, high: bytes by disk. worth: moved bytes for one that comes into the band."""

    def __init__(
        self, after: Floats, room: Floats, low: Floats, high: Floats, worth: float, leading: Leading
    ) -> None:
        self._after, self._room, self._low, self._high, self._worth = after, room, low, high, worth
        self._leading = leading

    def search(
        self,
        allowed: Flags,
        home: Int64s,
        copy: Floats,
        own: Floats,
        width: int,
        cost_max: float,
    ) -> list[list[tuple[int, int]]]:
        """By replica and place: what is allowed of the fleet as it is. Return plans, each a list of (replica,
        place), that cost less than `cost_max`, the cheapest first."""
        rows, places = np.nonzero(allowed)
        if not rows.size:
            return []
        names = np.random.default_rng(0).integers(1, 1 << 62, rows.size)  # equal sets of moves, equal sums
        leading = self._leading
        levels = [self._first(home.size)]
        ends: list[tuple[float, int, int]] = []
        for level in range(1, _LEVELS_MAX):
            plans = levels[-1]
            bounds, costs = self._costs(plans, rows, places, home, copy, own)
            barred = plans.used[:, rows] | (plans.room[:, places] < copy[rows])
            leads = leading.preferred[rows] & (leading.brokers[places] != leading.brokers[home[rows]])
            barred |= leads & (plans.leading[:, leading.brokers[places]] >= leading.most)
            bounds[barred | (bounds >= cost_max)] = np.inf
            ranks = (bounds - _PROGRESS * (plans.moved[:, None] + copy[rows])).ravel()
            order = np.argsort(ranks, kind="stable")[: 4 * width]
            order = order[np.isfinite(ranks[order])]
            if not order.size:
                break
            parents, moves = np.divmod(order, rows.size)
            keys = plans.keys[parents] + names[moves]
            _, distinct = np.unique(keys, return_index=True)
            chosen = np.sort(distinct)[:width]
            parents, moves, keys = parents[chosen], moves[chosen], keys[chosen]
            levels.append(self._next(plans, parents, rows[moves], places[moves], keys, home, copy, own))
            found = costs[parents, moves]
            ends += [
                (float(found[at]), level, at)
                for at in np.argsort(found, kind="stable")[:_KEPT_ENDS].tolist()
                if found[at] < cost_max
            ]
            cost_max = min(cost_max, *(cost for cost, _, _ in ends)) if ends else cost_max
        return [self._changes(levels, level, at) for _, level, at in sorted(ends)[:_KEPT_ENDS]]

    def _first(self, replicas: int) -> _Plans:
        none = np.zeros(1, np.int64)
        return _Plans(
            self._after[None, :],
            self._room[None, :],
            np.zeros(1),
            np.zeros((1, replicas), np.bool_),
            self._leading.by_broker[None, :],
            none,
            none,
            none,
            none,
        )

    def _costs(
        self, plans: _Plans, rows: Int64s, places: Int64s, home: Int64s, copy: Floats, own: Floats
    ) -> tuple[Floats, Floats]:
        """By plan and move: the least that it must come to, and what it costs as it is."""
        above = np.maximum(plans.after - self._high, 0)
        below = np.maximum(self._low - plans.after, 0)
        sources = home[rows]
        left = plans.after[:, sources] - own[rows]
        filled = plans.after[:, places] + copy[rows]
        more = np.maximum(left - self._high[sources], 0) - above[:, sources]
        more += np.maximum(filled - self._high[places], 0) - above[:, places]
        fewer = np.maximum(self._low[sources] - left, 0) - below[:, sources]
        fewer += np.maximum(self._low[places] - filled, 0) - below[:, places]
        all_above = above.sum(axis=1)[:, None] + more
        all_below = below.sum(axis=1)[:, None] + fewer
        moved = plans.moved[:, None] + copy[rows]
        costs = moved + self._worth * (all_above + all_below)
        return moved + np.maximum(all_above, all_below), costs

    def _next(
        self,
        plans: _Plans,
        parents: Int64s,
        rows: Int64s,
        places: Int64s,
        keys: Int64s,
        home: Int64s,
        copy: Floats,
        own: Floats,
    ) -> _Plans:
        each = np.arange(parents.size)
        after, room, used = plans.after[parents], plans.room[parents], plans.used[parents]
        after[each, home[rows]] -= own[rows]
        after[each, places] += copy[rows]
        room[each, places] -= copy[rows]
        used[each, rows] = True
        leading = plans.leading[parents]
        led = self._leading.preferred[rows].astype(np.int64)
        leading[each, self._leading.brokers[home[rows]]] -= led
        leading[each, self._leading.brokers[places]] += led
        moved = plans.moved[parents] + copy[rows]
        return _Plans(after, room, moved, used, leading, keys, parents, rows, places)

    def _changes(self, levels: list[_Plans], level: int, at: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        while level:
            plans = levels[level]
            found.append((int(plans.rows[at]), int(plans.places[at])))
            at, level = int(plans.parents[at]), level - 1
        return found[::-1]
