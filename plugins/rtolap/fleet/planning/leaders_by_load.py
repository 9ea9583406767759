"""Leaders by load: every broker sends about as many bytes a second as leader, without moving data.

What producers write reaches every replica, whoever leads. What changes with the leader is who sends it on: to
consumers, and to each follower. So the load of a partition is what consumers read of it, and what is written
to it times its followers.

1. Brokers above the mean hand partitions on to brokers below them that hold a replica, the idlest first, the
   largest loads first. What one gets it may hand on in the next round: so load goes along brokers that share
   no partition. Each step makes the sum of squares smaller.
2. Where whole partitions are too large for that, two brokers exchange one for another.
3. Every partition whose preferred replica can lead and does not elects it, as by `leaders`.

No broker gets to lead by preference more than a fifth more partitions than the mean, or than the one that
leads most: each costs its leader requests, however little is in it. A plan that would hardly lower what the
busiest broker sends changes nothing. Any other is followed by the plan that would be made of the fleet that
it leads to, until that changes nothing: so a second plan is empty.
"""

from __future__ import annotations

import math

import numpy as np

from rtolap.base.errors import IncompleteSnapshot
from rtolap.fleet.planning.leaders import elections_of, eligible_replicas, prefer
from rtolap.fleet.planning.placement import Placement
from rtolap.fleet.planning.plan import Bounds, Limits, Plan, PlanKind, plan_of, refuse_missing
from rtolap.fleet.planning.planned_state import state_with
from rtolap.fleet.planning.refusals import partition_names
from rtolap.fleet.planning.transfers import largest_first
from rtolap.fleet.snapshot.model import UNKNOWN, Flags, FleetSnapshot, Floats, Int64s

TOLERANCE = 0.02
_ROUNDS_MAX = 30
_GAIN_MIN = 1e-6  # of the sum of squares, in a round
_BUSIEST_GAIN_MIN = 0.002  # of what the busiest broker sends: for less nobody is elected
_PLANNED_MAX = 20
_LEADING_SHARE_MAX = 1.2
_EXCHANGED_MAX = 2000  # of each of two brokers, the largest loads


def plan_leaders_by_load(
    snapshot: FleetSnapshot, *, tolerance: float = TOLERANCE, limits: Limits = Limits()
) -> Plan:
    """Plan leaders by load. `tolerance` is how far above the mean a broker may be, as a share of it. Raises
    IncompleteSnapshot where rates are not known."""
    refuse_missing(snapshot, PlanKind.LEADERS_BY_LOAD)
    _refuse_unknown(snapshot)
    placement = Placement(snapshot, disk_limit=limits.disk_limit, allowed=limits.allowed)
    loads, able = sent_bytes_per_s(snapshot), placement.able
    before = led_load(snapshot, loads)[able]
    state = snapshot
    for _ in range(_PLANNED_MAX):
        shared = _shared(state, loads, tolerance, limits)
        if shared is None:
            break
        state = shared
    ordered = Placement(state, disk_limit=limits.disk_limit, allowed=limits.allowed)
    placement.adopt(ordered.brokers, ordered.log_dirs)
    changed = placement.changed().size
    leaders = state.partitions.leaders
    elections = np.flatnonzero(leaders != snapshot.partitions.leaders)
    why = [
        f"Brokers that serve send {_range(before)} bytes a second as leaders, to consumers and followers,"
        f" afterwards {_range(led_load(state, loads)[able])};"
        f" {changed} partitions change the order of their replicas.",
        f"{elections.size} partitions elect their preferred replica. No data moves.",
    ]
    return plan_of(
        placement,
        PlanKind.LEADERS_BY_LOAD,
        [("tolerance", f"{tolerance:g}")],
        why,
        Bounds(0, 0),
        limits=limits,
        elections=elections,
    )


def _shared(snapshot: FleetSnapshot, loads: Floats, tolerance: float, limits: Limits) -> FleetSnapshot | None:
    """Return the fleet with loads shared more evenly, None where too little is gained for a plan."""
    placement = Placement(snapshot, disk_limit=limits.disk_limit, allowed=limits.allowed)
    eligible, able = eligible_replicas(placement), placement.able
    busiest = float(led_load(snapshot, loads)[able].max(initial=0.0))
    sharing = _Sharing(placement, eligible, loads)
    sharing.run(tolerance)
    ordered = prefer(placement, sharing.first)
    elections = elections_of(placement, eligible, ordered)
    rows = np.union1d(ordered, elections).astype(np.int64)
    state = state_with(snapshot, rows, placement.brokers[rows], placement.log_dirs[rows], elections)
    # What counts is what brokers send when all that can be elected is, not what they would by preference.
    reached = float(led_load(state, loads)[able].max(initial=0.0))
    return state if reached < busiest * (1 - _BUSIEST_GAIN_MIN) else None


def _refuse_unknown(snapshot: FleetSnapshot) -> None:
    partitions = snapshot.partitions
    unknown = np.isnan(partitions.bytes_in_per_s) | np.isnan(partitions.bytes_out_per_s)
    rows = np.flatnonzero(unknown & (partitions.leaders != UNKNOWN))
    if rows.size:
        raise IncompleteSnapshot(
            "rates are not known",
            found=partition_names(snapshot, rows),
            action="take a snapshot with the sources of brokers' metrics",
        )


def sent_bytes_per_s(snapshot: FleetSnapshot) -> Floats:
    """Return by partition what its leader sends as such; nothing where that is not known."""
    partitions = snapshot.partitions
    followers = np.maximum(np.diff(partitions.first_replicas) - 1, 0)
    sent: Floats = np.nan_to_num(partitions.bytes_out_per_s) + followers * np.nan_to_num(
        partitions.bytes_in_per_s
    )
    return sent


def led_load(snapshot: FleetSnapshot, loads: Floats) -> Floats:
    """Return by broker the loads of the partitions that it leads."""
    led = snapshot.partitions.leaders != UNKNOWN
    of_brokers = np.bincount(snapshot.partitions.leaders[led], loads[led], len(snapshot.brokers))
    return of_brokers.astype(np.float64)


def _range(loads: Floats) -> str:
    return f"{math.floor(loads.min())} to {math.ceil(loads.max())}" if loads.size else "no"


class _Sharing:
    """first: the slot that each partition prefers. load, leading: by broker, if preferred replicas led."""

    def __init__(self, placement: Placement, eligible: Flags, loads: Floats) -> None:
        self._placement, self._eligible, self._loads = placement, eligible, loads
        self.movable = eligible.any(axis=1)
        # A leader by preference that cannot lead hands on to the first that can.
        self.first: Int64s = np.where(self.movable & ~eligible[:, 0], eligible.argmax(axis=1), 0)
        count = len(placement.snapshot.brokers)
        present = placement.factors > 0
        leads = placement.brokers[np.arange(len(present)), self.first]
        self.leading: Int64s = np.bincount(leads[present], minlength=count)
        self.load: Floats = np.bincount(leads[present], loads[present], count).astype(np.float64)
        able = placement.able
        mean = float(self.leading[able].mean()) if able.any() else 0.0
        before = placement.leading[able].max(initial=0)
        self._leading_max = max(int(before), math.ceil(_LEADING_SHARE_MAX * mean))
        # partitions by the broker that they prefer, kept as they change hands
        self._led: list[Int64s] = [np.zeros(0, np.int64)] * count
        rows = np.flatnonzero(self.movable)
        order = rows[np.lexsort((-loads[rows], leads[rows]))]
        bounds = np.searchsorted(leads[order], np.arange(count + 1))
        for broker in range(count):
            self._led[broker] = order[bounds[broker] : bounds[broker + 1]]

    def run(self, tolerance: float) -> None:
        able = np.flatnonzero(self._placement.able)
        if able.size < 2:
            return
        mean = float(self.load[able].mean())
        for _ in range(_ROUNDS_MAX):
            if self.load[able].max() <= mean * (1 + tolerance):
                return
            before = float((self.load[able] ** 2).sum())
            for giver in able[np.argsort(-self.load[able], kind="stable")].tolist():
                self._give(giver, able, mean, mean * (1 + tolerance / 2))
            if float((self.load[able] ** 2).sum()) > before * (1 - _GAIN_MIN):
                return

    def _give(self, giver: int, able: Int64s, mean: float, limit: float) -> None:
        """Give load to brokers that have less, the idlest first, and then exchange what is too large to
        give.
        """
        for step in (self._hand_on, self._exchange):
            for getter in able[np.argsort(self.load[able], kind="stable")].tolist():
                if self.load[giver] <= limit:
                    return
                if self.load[getter] < self.load[giver]:
                    step(giver, getter, mean)

    def _hand_on(self, giver: int, getter: int, mean: float) -> None:
        """Transfer leadership until one of the two brokers reaches the mean.

        If both are above the mean, half of their difference is transferred.
        """
        more, less = float(self.load[giver]), float(self.load[getter])
        amount = int(min(more - mean, mean - less) if less < mean else (more - less) / 2)
        spare = max(self._leading_max - int(self.leading[getter]), 0)
        rows = self._offered(giver, getter)
        sizes = np.ceil(self._loads[rows]).astype(np.int64)
        rows, sizes = rows[sizes > 0], sizes[sizes > 0]
        self._change(giver, getter, rows[largest_first(sizes, amount)][:spare])

    def _exchange(self, giver: int, getter: int, mean: float) -> None:
        """Exchange a partition for another, or for none, to bring both loads as near as possible.

        Nothing changes unless the exchange gains.
        """
        gap = float(self.load[giver] - self.load[getter])
        given = self._offered(giver, getter)[:_EXCHANGED_MAX]
        taken = self._offered(getter, giver)[:_EXCHANGED_MAX]
        if not given.size:
            return
        ascending = self._loads[taken][::-1]
        if self.leading[getter] < self._leading_max:
            ascending = np.concatenate(([0.0], ascending))
        if not ascending.size:
            return
        # for each one that is given, the one whose load is nearest to its own less half the gap
        wanted = self._loads[given] - gap / 2
        above = np.minimum(np.searchsorted(ascending, wanted), ascending.size - 1)
        below = np.maximum(above - 1, 0)
        at = np.where(np.abs(ascending[below] - wanted) < np.abs(ascending[above] - wanted), below, above)
        shift = self._loads[given] - ascending[at]
        best = int(np.argmin(np.abs(shift - gap / 2)))
        if 0 < shift[best] < gap:
            back = ascending.size - 1 - int(at[best])
            self._change(giver, getter, given[best : best + 1])
            self._change(getter, giver, taken[back : back + 1])

    def _offered(self, giver: int, getter: int) -> Int64s:
        """Return partitions that the one prefers and the other could lead, the largest load first."""
        rows = self._led[giver]
        there = (self._placement.brokers[rows] == getter) & self._eligible[rows]
        offered: Int64s = rows[there.any(axis=1)]
        return offered

    def _change(self, giver: int, getter: int, rows: Int64s) -> None:
        if not rows.size:
            return
        there = (self._placement.brokers[rows] == getter) & self._eligible[rows]
        self.first[rows] = there.argmax(axis=1)
        total = float(self._loads[rows].sum())
        self.load[giver] -= total
        self.load[getter] += total
        self.leading[giver] -= rows.size
        self.leading[getter] += rows.size
        self._led[giver] = np.setdiff1d(self._led[giver], rows, assume_unique=True)
        self._led[giver] = self._by_load(self._led[giver])
        self._led[getter] = self._by_load(np.concatenate((self._led[getter], rows)))

    def _by_load(self, rows: Int64s) -> Int64s:
        return rows[np.lexsort((rows, -self._loads[rows]))]
