"""Drain: a broker, or one disk of a broker, ends empty.

Replicas are placed one by one, the largest first, each on the idlest disk that the rules allow (`idlest`).
What leaves a disk that still works goes to another of the same broker while that stays below the mean: it
costs no network. Where the last find no place so, all are placed anew together (`packing`). A replica on a
dead broker or a failed disk is copied from its partition's leader.
"""

from __future__ import annotations

import numpy as np

from rtolap.base.errors import ImpossiblePlan, NotFound
from rtolap.fleet.planning.idlest import IdlestDisks
from rtolap.fleet.planning.packing import pack
from rtolap.fleet.planning.placement import Placement
from rtolap.fleet.planning.plan import Bounds, Limits, Plan, PlanKind, plan_of, refuse_missing
from rtolap.fleet.planning.refusals import broker_rows, by_size, refuse_unmovable
from rtolap.fleet.snapshot.model import UNKNOWN, Flags, FleetSnapshot, Int64s


def plan_drain(snapshot: FleetSnapshot, broker_ids: list[int], *, limits: Limits = Limits()) -> Plan:
    """Plan the draining of brokers. Raises NotFound for an unknown broker, and what `refusals` and `idlest`
    raise."""
    refuse_missing(snapshot, PlanKind.DRAIN)
    drained = broker_rows(snapshot, broker_ids)
    placement = Placement(snapshot, disk_limit=limits.disk_limit, allowed=limits.allowed)
    positions = placement.positions[drained[snapshot.replicas.brokers]]
    named = ", ".join(str(broker) for broker in sorted(set(broker_ids)))
    goal = f"drain of {named}"
    refuse_unmovable(placement, positions // placement.slots, goal)
    barred = drained[snapshot.log_dirs.brokers]
    disks = IdlestDisks(placement, barred)
    try:
        for position in by_size(placement, positions).tolist():
            disks.replace(position, goal)
    except ImpossiblePlan:
        placement = Placement(snapshot, disk_limit=limits.disk_limit, allowed=limits.allowed)
        if not pack(placement, positions, barred):
            raise
    return _drained(placement, positions, PlanKind.DRAIN, ("brokers", named), f"broker {named}", limits)


def plan_remove_disk(
    snapshot: FleetSnapshot, broker_id: int, path: str, *, limits: Limits = Limits()
) -> Plan:
    """Plan the emptying of a disk. Raises as `plan_drain`, and NotFound for a directory that the broker does
    not have."""
    refuse_missing(snapshot, PlanKind.REMOVE_DISK)
    broker = int(np.flatnonzero(broker_rows(snapshot, [broker_id]))[0])
    dirs = snapshot.log_dirs
    rows = [row for row in np.flatnonzero(dirs.brokers == broker).tolist() if dirs.paths[row] == path]
    if not rows:
        own = [dirs.paths[row] for row in np.flatnonzero(dirs.brokers == broker)]
        raise NotFound(f"broker {broker_id} has no such log directory", expected=f"one of {own}", found=path)
    placement = Placement(snapshot, disk_limit=limits.disk_limit, allowed=limits.allowed)
    positions = _on_disk(placement, broker, rows[0])
    goal = f"removal of {broker_id}:{path}"
    refuse_unmovable(placement, positions // placement.slots, goal)
    barred = np.zeros(len(dirs), np.bool_)
    barred[rows[0]] = True
    disks = IdlestDisks(placement, barred)
    share_max = float(placement.after_bytes()[placement.takes].sum(dtype=np.float64)) / max(
        float(placement.total_bytes[placement.takes].sum(dtype=np.float64)), 1.0
    )
    works = bool(placement.able[broker]) and not dirs.offline[rows[0]]
    try:
        for position in by_size(placement, positions).tolist():
            if not (works and disks.beside(position, share_max)):
                disks.replace(position, goal, beside=works)
    except ImpossiblePlan:
        placement = Placement(snapshot, disk_limit=limits.disk_limit, allowed=limits.allowed)
        if not pack(placement, positions, barred, beside=works):
            raise
    disk = ("disk", f"{broker_id}:{path}")
    return _drained(placement, positions, PlanKind.REMOVE_DISK, disk, f"disk {broker_id}:{path}", limits)


def _on_disk(placement: Placement, broker: int, log_dir: int) -> Int64s:
    """Return the replicas of the directory.

    A failed directory reports none: then they are those of its broker without a known directory and out of
    sync.
    """
    snapshot = placement.snapshot
    replicas, dirs = snapshot.replicas, snapshot.log_dirs
    there: Flags = replicas.log_dirs == log_dir
    if dirs.offline[log_dir]:
        there |= (replicas.brokers == broker) & (replicas.log_dirs == UNKNOWN) & ~replicas.in_sync
    positions: Int64s = placement.positions[there]
    return positions


def _drained(
    placement: Placement,
    positions: Int64s,
    kind: PlanKind,
    argument: tuple[str, str],
    name: str,
    limits: Limits,
) -> Plan:
    needed = int(placement.partition_bytes[positions // placement.slots].sum())
    said = (
        f"{positions.size} replicas leave {name}, the largest first, each to the idlest disk that may get it."
    )
    return plan_of(
        placement,
        kind,
        [argument],
        [said if positions.size else f"There is no replica on {name}."],
        Bounds(needed, 0),
        limits=limits,
    )
