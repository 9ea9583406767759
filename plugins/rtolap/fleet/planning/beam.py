"""Beam search for the few replicas whose moves fit together.

A plan is a set of moves from the fleet as it is. Each level adds one move to every plan that is kept, in each
way that is allowed, and keeps the plans with the least of: bytes moved, and bytes that are still above the
band or still missing below it, whichever are more. No plan that follows moves fewer, so the measure never
lets a plan look dearer than its best end. Rules that hang on other moves of a plan are left to who makes it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rtolap.fleet.snapshot.model import Flags, Floats, Int64s

_LEVELS_MAX = 24
_KEPT_ENDS = 20


@dataclass(frozen=True, eq=False)
class _Plans:
    """Plans of one level, a row each. after, room: bytes by disk. used: partitions that moved. parents: rows
    of the level before; rows, places: the last move."""

    after: Floats
    room: Floats
    moved: Floats
    used: Flags
    keys: Int64s
    parents: Int64s
    rows: Int64s
    places: Int64s


class Beam:
    """after, room, low, high: bytes by disk. worth: moved bytes for one that comes into the band."""

    def __init__(self, after: Floats, room: Floats, low: Floats, high: Floats, worth: float) -> None:
        self._after, self._room, self._low, self._high, self._worth = after, room, low, high, worth

    def search(
        self,
        allowed: Flags,
        home: Int64s,
        copy: Floats,
        own: Floats,
        partitions: Int64s,
        width: int,
        cost_max: float,
    ) -> list[list[tuple[int, int]]]:
        """By replica and place: what is allowed of the fleet as it is. Return plans, each a list of (replica,
        place), that cost less than `cost_max`, the cheapest first."""
        _, groups = np.unique(partitions, return_inverse=True)
        rows, places = np.nonzero(allowed)
        if not rows.size:
            return []
        names = np.random.default_rng(0).integers(1, 1 << 62, rows.size)  # equal sets of moves, equal sums
        levels = [self._first(int(groups.max()) + 1)]
        ends: list[tuple[float, int, int]] = []
        for level in range(1, _LEVELS_MAX):
            plans = levels[-1]
            bounds, costs = self._costs(plans, rows, places, home, copy, own)
            barred = plans.used[:, groups[rows]] | (plans.room[:, places] < copy[rows])
            bounds[barred | (bounds >= cost_max)] = np.inf
            order = np.argsort(bounds.ravel(), kind="stable")[: 4 * width]
            order = order[np.isfinite(bounds.ravel()[order])]
            if not order.size:
                break
            parents, moves = np.divmod(order, rows.size)
            keys = plans.keys[parents] + names[moves]
            _, distinct = np.unique(keys, return_index=True)
            chosen = np.sort(distinct)[:width]
            parents, moves, keys = parents[chosen], moves[chosen], keys[chosen]
            levels.append(
                self._next(plans, parents, rows[moves], places[moves], keys, home, copy, own, groups)
            )
            found = costs[parents, moves]
            ends += [
                (float(found[at]), level, at)
                for at in np.argsort(found, kind="stable")[:_KEPT_ENDS].tolist()
                if found[at] < cost_max
            ]
            cost_max = min(cost_max, *(cost for cost, _, _ in ends)) if ends else cost_max
        return [self._changes(levels, level, at) for _, level, at in sorted(ends)[:_KEPT_ENDS]]

    def _first(self, groups: int) -> _Plans:
        none = np.zeros(1, np.int64)
        return _Plans(
            self._after[None, :],
            self._room[None, :],
            np.zeros(1),
            np.zeros((1, groups), np.bool_),
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
        groups: Int64s,
    ) -> _Plans:
        each = np.arange(parents.size)
        after, room, used = plans.after[parents], plans.room[parents], plans.used[parents]
        after[each, home[rows]] -= own[rows]
        after[each, places] += copy[rows]
        room[each, places] -= copy[rows]
        used[each, groups[rows]] = True
        return _Plans(after, room, plans.moved[parents] + copy[rows], used, keys, parents, rows, places)

    def _changes(self, levels: list[_Plans], level: int, at: int) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        while level:
            plans = levels[level]
            found.append((int(plans.rows[at]), int(plans.places[at])))
            at, level = int(plans.parents[at]), level - 1
        return found[::-1]
