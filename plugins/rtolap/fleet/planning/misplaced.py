"""Placement repair: replicas that stand where their topic may not go to brokers where it may.

Replicas go one by one, the largest first, each to the idlest disk that its topic's rule and all others allow
(`idlest`).
"""

from __future__ import annotations

import numpy as np

from rtolap.fleet.planning.idlest import IdlestDisks
from rtolap.fleet.planning.placement import Placement
from rtolap.fleet.planning.plan import Bounds, Kind, Limits, Plan, plan_of, refuse_missing
from rtolap.fleet.planning.refusals import by_size, refuse_unmovable
from rtolap.fleet.snapshot.model import ReplicaState, Snapshot


def plan_placement(snapshot: Snapshot, *, limits: Limits) -> Plan:
    """limits: without the brokers that it allows nothing is misplaced. Raises what `refusals` and `idlest`
    say."""
    refuse_missing(snapshot, Kind.PLACEMENT)
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
    return plan_of(
        placement,
        Kind.PLACEMENT,
        [],
        [why],
        Bounds(needed, 0),
        throttle_bytes_per_s=limits.throttle_bytes_per_s,
    )
