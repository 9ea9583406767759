"""The plan of preferred leaders, by which every broker leads about as many partitions, without moving data.

1. The order of replicas changes only where a broker would lead too many partitions by preference. Brokers are
   nodes, and a broker reaches another by each partition that it leads and whose other replica stands there.
   From a broker with too many, the shortest way to one with too few is looked for; along it leadership is
   handed on. No way from any: then no order of replicas is more even.
2. Every partition whose preferred replica serves, is in sync and does not lead elects it.

Only replicas in sync on brokers that serve are made leaders; partitions under a running move are left alone.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from rtolap.fleet.planning.placement import Placement
from rtolap.fleet.planning.plan import Bounds, Limits, Plan, PlanKind, plan_of, refuse_missing
from rtolap.fleet.snapshot.model import UNKNOWN, Flags, FleetSnapshot, Int64s


def plan_leaders(snapshot: FleetSnapshot, *, limits: Limits = Limits()) -> Plan:
    """Plan preferred leaders. Raises IncompleteSnapshot."""
    refuse_missing(snapshot, PlanKind.LEADERS)
    placement = Placement(snapshot, disk_limit=limits.disk_limit, allowed=limits.allowed)
    eligible = eligible_replicas(placement)
    balance = _Leadership(placement, eligible)
    before = balance.leading.copy()
    balance.run()
    ordered = prefer(placement, balance.first)
    elections = elections_of(placement, eligible, ordered)
    able = placement.able
    why = [
        f"Brokers that serve lead {_range(before[able])} partitions by preference, afterwards"
        f" {_range(balance.leading[able])}; {ordered.size} partitions change the order of their replicas.",
        f"{elections.size} partitions elect their preferred replica. No data moves.",
    ]
    return plan_of(placement, PlanKind.LEADERS, [], why, Bounds(0, 0), limits=limits, elections=elections)


def eligible_replicas(placement: Placement) -> Flags:
    """Return the replicas that may lead, as flags over the slots of the placement."""
    in_sync = np.zeros(placement.brokers.shape, np.bool_)
    in_sync.ravel()[placement.positions] = placement.snapshot.replicas.in_sync
    able = np.append(placement.able, False)[placement.brokers]
    eligible: Flags = in_sync & (placement.brokers != UNKNOWN) & able & ~placement.fixed[:, None]
    return eligible


def prefer(placement: Placement, first: Int64s) -> Int64s:
    """Put the replica of that slot of each partition first: it changes places with the one that was. Return
    the partitions that change."""
    rows = np.flatnonzero(first != 0)
    slots = first[rows]
    for matrix in (placement.brokers, placement.log_dirs):
        matrix[rows, 0], matrix[rows, slots] = matrix[rows, slots], matrix[rows, 0].copy()
    return rows


def elections_of(placement: Placement, eligible: Flags, ordered: Int64s) -> Int64s:
    """Return partitions whose preferred replica is able to lead and does not. ordered: those that have
    another preferred replica now.
    """
    changed = np.zeros(len(eligible), np.bool_)
    changed[ordered] = True
    # Where the order has changed, the new preferred replica is one that was chosen because it can lead.
    able = eligible[:, 0] | changed
    return np.flatnonzero(able & (placement.brokers[:, 0] != placement.snapshot.partitions.leaders))


def _range(counts: Int64s) -> str:
    return f"{counts.min()} to {counts.max()}" if counts.size else "no"


class _Leadership:
    """first: the slot that each partition prefers. ways[a, b]: partitions that a could hand to b."""

    def __init__(self, placement: Placement, eligible: Flags) -> None:
        self._placement, self._eligible = placement, eligible
        self._count = len(placement.snapshot.brokers)
        self.first: Int64s = np.zeros(len(eligible), np.int64)
        self._rows = np.arange(len(eligible))
        self.leading = placement.leading.copy()
        movable = eligible.any(axis=1)
        # A leader by preference that cannot lead hands on to the first that can.
        dead = movable & ~eligible[:, 0]
        self._change(np.flatnonzero(dead), eligible[dead].argmax(axis=1))
        self._movable = movable
        self._ways = np.zeros((self._count, self._count), np.int64)
        self._note(np.flatnonzero(movable), 1)

    def run(self) -> None:
        able = np.flatnonzero(self._placement.able)
        total = int(self.leading[able].sum())
        if not able.size:
            return
        least, rest = divmod(total, able.size)
        most = least + (rest > 0)
        stuck: set[int] = set()
        while True:
            above = [b for b in able.tolist() if self.leading[b] > most and b not in stuck]
            sources = above or [b for b in able.tolist() if self.leading[b] > least and b not in stuck]
            needy = self.leading < (most if above else least)
            needy[~self._placement.able] = False
            if not sources or not needy.any():
                return
            source = max(sources, key=lambda b: (self.leading[b], -b))
            goal = most if above else least
            way = self._way(source, needy)
            if way is not None:
                count = min(int(self.leading[source]) - goal, goal - int(self.leading[way[-1]]))
            else:  # nobody has too few: share with who has two less
                way = self._way(source, self._placement.able & (self.leading <= self.leading[source] - 2))
                if way is None:
                    stuck.add(source)
                    continue
                count = (int(self.leading[source]) - int(self.leading[way[-1]])) // 2
            count = min(max(count, 1), *(int(self._ways[a, b]) for a, b in pairwise(way)))
            for giver, getter in pairwise(way):
                self._hand_on(giver, getter, count)

    def _way(self, source: int, needy: Flags) -> list[int] | None:
        """Return the shortest way, by brokers in their order."""
        came_from = np.full(self._count, -1)
        came_from[source] = source
        front = [source]
        while front:
            following: list[int] = []
            for broker in front:
                for reached in np.flatnonzero((self._ways[broker] > 0) & (came_from < 0)).tolist():
                    came_from[reached] = broker
                    following.append(reached)
            ends = [broker for broker in following if needy[broker]]
            if ends:
                way = [min(ends, key=lambda b: (self.leading[b], b))]
                while way[0] != source:
                    way.insert(0, int(came_from[way[0]]))
                return way
            front = following
        return None

    def _hand_on(self, giver: int, getter: int, count: int) -> None:
        brokers = self._placement.brokers
        led = np.flatnonzero(self._movable & (brokers[self._rows, self.first] == giver))
        there = (brokers[led] == getter) & self._eligible[led]
        # Partitions that change back to their own order first: they leave the plan.
        offered = np.flatnonzero(there.any(axis=1))
        slots = there[offered].argmax(axis=1)
        order = np.argsort(np.where(slots == 0, 0, 1), kind="stable")[:count]
        self._note(led[offered[order]], -1)
        self._change(led[offered[order]], slots[order])
        self._note(led[offered[order]], 1)

    def _change(self, rows: Int64s, slots: Int64s) -> None:
        brokers = self._placement.brokers
        np.subtract.at(self.leading, brokers[rows, self.first[rows]], 1)
        self.first[rows] = slots
        np.add.at(self.leading, brokers[rows, slots], 1)

    def _note(self, rows: Int64s, sign: int) -> None:
        brokers = self._placement.brokers
        leaders = brokers[rows, self.first[rows]]
        for slot in range(brokers.shape[1]):
            others = self._eligible[rows, slot] & (brokers[rows, slot] != leaders)
            np.add.at(self._ways, (leaders[others], brokers[rows, slot][others]), sign)
