"""Placement repair: replicas that stand where their topic may not go to brokers where it may.

Which broker takes which topic comes from outside (`isolation.placement`), as a table of rules by broker. Rule
by rule, replicas go one by one, the largest first, each to the idlest disk that its rule and all others allow
(`idlest`).
"""

from __future__ import annotations

import numpy as np

from rtolap.fleet.planning.idlest import IdlestDisks
from rtolap.fleet.planning.placement import Placement
from rtolap.fleet.planning.plan import Bounds, Kind, Limits, Plan, plan_of, refuse_missing
from rtolap.fleet.planning.refusals import by_size, refuse_unmovable
from rtolap.fleet.snapshot.model import Flags, Int32s, ReplicaState, Snapshot


def plan_placement(
    snapshot: Snapshot, rules: Int32s, allowed_by_rule: Flags, *, limits: Limits = Limits()
) -> Plan:
    """rules: of each topic, a row of `allowed_by_rule`, whose columns are brokers. Raises what `refusals` and
    `idlest` say."""
    refuse_missing(snapshot, Kind.PLACEMENT)
    placement = Placement(snapshot, disk_limit=limits.disk_limit)
    replicas = snapshot.replicas
    rule_of = rules[snapshot.partitions.topics[replicas.partitions]]
    misplaced = ~allowed_by_rule[rule_of, replicas.brokers] & (replicas.states != ReplicaState.REMOVING)
    goal = "placement repair"
    refuse_unmovable(placement, replicas.partitions[misplaced].astype(np.int64), goal)
    for rule, allowed in enumerate(allowed_by_rule):
        positions = placement.positions[misplaced & (rule_of == rule)]
        disks = IdlestDisks(placement, ~allowed[snapshot.log_dirs.brokers])
        for position in by_size(placement, positions).tolist():
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
