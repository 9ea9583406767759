"""Repairs of placement: replicas that share a rack, or stand where their topic may not, go to where they may.

Racks: of replicas that share one the first by preference stays, each other goes to a rack that has none of
the partition, to the idlest disk there. Where a factor is above the number of racks that brokers serve in,
there is no such placement. Partitions that cannot be repaired are left out and named; the others are
repaired. Where none can, that is an error.

Placement rules: replicas go one by one, the largest first, each to the idlest disk that its topic's rule and
all others allow (`idlest`).
"""

from __future__ import annotations

import numpy as np

from rtolap.base.errors import ImpossiblePlan, RtolapError
from rtolap.fleet.planning.idlest import IdlestDisks
from rtolap.fleet.planning.placement import NO_RACK, Placement, fullest_rack
from rtolap.fleet.planning.plan import Bounds, Limits, Plan, PlanKind, plan_of, refuse_missing
from rtolap.fleet.planning.refusals import (
    by_size,
    left_out_text,
    partition_names,
    partitions_left_out,
    refuse_unmovable,
    unmovable,
)
from rtolap.fleet.snapshot.model import UNKNOWN, Flags, FleetSnapshot, Int64s, ReplicaState


def plan_racks(snapshot: FleetSnapshot, *, limits: Limits = Limits()) -> Plan:
    """Plan the repair of racks. Raises ImpossiblePlan, and what `refusals` and `idlest` raise."""
    refuse_missing(snapshot, PlanKind.RACK)
    if not any(rack is not None for rack in snapshot.brokers.racks):
        raise ImpossiblePlan(
            "rack repair: no broker names its rack", action="set broker.rack, and restart the brokers"
        )
    placement = Placement(snapshot, disk_limit=limits.disk_limit, allowed=limits.allowed)
    racks = np.where(placement.brokers == UNKNOWN, NO_RACK, placement.racks[placement.brokers])
    wrong = np.flatnonzero(fullest_rack(racks) > 1)
    above = wrong[placement.factors[wrong] > placement.racks_able]
    reasons: list[tuple[Int64s, RtolapError]] = []
    if above.size:
        too_many = ImpossiblePlan(
            "rack repair: partitions have more replicas than there are racks",
            expected=f"a factor of at most {placement.racks_able}",
            found=partition_names(snapshot, above),
            action="add brokers in other racks, or lower the factor",
        )
        reasons.append((above, too_many))
    rest = np.setdiff1d(wrong, above)
    reasons += unmovable(placement, rest, "rack repair")
    out = np.unique(np.concatenate([partitions for partitions, _ in reasons])) if reasons else above
    repeated = np.flatnonzero(_repeated(racks))
    positions = repeated[~np.isin(repeated // placement.slots, out)]
    disks = IdlestDisks(placement, np.zeros(len(snapshot.log_dirs), np.bool_))
    moved = 0
    for position in by_size(placement, positions).tolist():
        try:
            disks.spread(position, "rack repair")
            moved += 1
        except ImpossiblePlan as error:
            reasons.append((np.array([position // placement.slots]), error))
    if reasons and not moved:
        raise reasons[0][1]
    left_out = partitions_left_out(snapshot, reasons)
    needed = int(placement.partition_bytes[positions // placement.slots].sum())
    why = [
        f"{wrong.size} of {len(snapshot.partitions)} partitions have replicas that share a rack;"
        f" {moved} replicas go to another one.",
        *left_out_text(left_out),
    ]
    left = needed - int(np.maximum(placement.incoming_bytes - placement.running_bytes, 0).sum())
    return plan_of(
        placement, PlanKind.RACK, [], why, Bounds(needed, max(left, 0)), limits=limits, left_out=left_out
    )


def _repeated(racks: Int64s) -> Flags:
    """Return the slots whose rack stands in an earlier slot of their row."""
    found = np.zeros(racks.shape, np.bool_)
    for slot in range(1, racks.shape[1]):
        earlier = (racks[:, :slot] == racks[:, slot, None]).any(axis=1)
        found[:, slot] = earlier & (racks[:, slot] != NO_RACK)
    return found.ravel()


def plan_placement(snapshot: FleetSnapshot, *, limits: Limits) -> Plan:
    """Plan the repair of misplaced topics. Without allowed brokers in `limits`, nothing is misplaced.
    Raises what `refusals` and `idlest` raise."""
    refuse_missing(snapshot, PlanKind.PLACEMENT)
    placement = Placement(snapshot, disk_limit=limits.disk_limit, allowed=limits.allowed)
    replicas = snapshot.replicas
    may_stand = placement.allowed.by_rule[placement.rules[replicas.partitions], replicas.brokers]
    misplaced = ~may_stand & (replicas.states != ReplicaState.REMOVING)
    goal = "placement repair"
    refuse_unmovable(placement, replicas.partitions[misplaced].astype(np.int64), goal)
    disks = IdlestDisks(placement, np.zeros(len(snapshot.log_dirs), np.bool_))
    for position in by_size(placement, placement.positions[misplaced]).tolist():
        disks.replace(position, goal)
    count = int(misplaced.sum())
    needed = int(placement.partition_bytes[replicas.partitions[misplaced]].sum())
    why = (
        f"{count} replicas stand on brokers where their topics may not; each goes to one where it may."
        if count
        else "Every replica stands where its topic may."
    )
    return plan_of(placement, PlanKind.PLACEMENT, [], [why], Bounds(needed, 0), limits=limits)
