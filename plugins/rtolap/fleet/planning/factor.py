"""Replication factor raised: each partition of some topics gets more replicas.

A new replica stands last by preference, in a rack that has fewest of the partition, on the idlest disk there.
Leaders stay where they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rtolap.base.errors import DefinitionError, ImpossiblePlan, NotFound
from rtolap.fleet.planning.idlest import IdlestDisks
from rtolap.fleet.planning.placement import Placement
from rtolap.fleet.planning.plan import Bounds, Kind, Limits, Plan, plan_of, refuse_missing
from rtolap.fleet.planning.refusals import refuse_unmovable
from rtolap.fleet.snapshot.model import Int64s, Snapshot


def plan_factor(snapshot: Snapshot, topics: Sequence[str], factor: int, *, limits: Limits = Limits()) -> Plan:
    """Raises NotFound for an unknown topic, DefinitionError for a factor that is lower than one has, and
    ImpossiblePlan for one above the brokers or the racks that serve."""
    refuse_missing(snapshot, Kind.FACTOR)
    partitions = _partitions(snapshot, topics)
    placement = Placement(snapshot, disk_limit=limits.disk_limit, slots=factor, allowed=limits.allowed)
    most = int(placement.factors[partitions].max(initial=1))
    if factor < most:
        raise DefinitionError(
            "a plan raises replication factors", expected=f"{most} replicas or more", found=factor
        )
    short = partitions[placement.factors[partitions] < factor]
    racked = any(rack is not None for rack in snapshot.brokers.racks)
    able = placement.racks_able if racked else int(placement.able.sum())
    if short.size and factor > able:
        raise ImpossiblePlan(
            f"a factor of {factor}: there are too few {'racks' if racked else 'brokers'} that serve",
            expected=f"at most {able}",
            found=factor,
        )
    goal = f"a factor of {factor}"
    refuse_unmovable(placement, short, goal)
    needed = int((placement.partition_bytes[short] * (factor - placement.factors[short])).sum())
    added = int((factor - placement.factors[short]).sum())
    disks = IdlestDisks(placement, np.zeros(len(snapshot.log_dirs), np.bool_))
    order = short[np.argsort(-placement.partition_bytes[short], kind="stable")]
    for partition in order.tolist():
        while placement.factors[partition] < factor:
            disks.another(partition, goal)
    return plan_of(
        placement,
        Kind.FACTOR,
        [("factor", str(factor)), ("topics", ",".join(sorted(set(topics))))],
        [f"{short.size} of {partitions.size} partitions get {added} replicas more."],
        Bounds(needed, 0),
        throttle_bytes_per_s=limits.throttle_bytes_per_s,
    )


def _partitions(snapshot: Snapshot, topics: Sequence[str]) -> Int64s:
    rows = {name: row for row, name in enumerate(snapshot.topics.names)}
    unknown = sorted(set(topics) - rows.keys())
    if unknown or not topics:
        raise NotFound(f"the snapshot of {snapshot.cluster_id} has no such topic", found=unknown)
    return np.flatnonzero(np.isin(snapshot.partitions.topics, [rows[name] for name in topics]))
