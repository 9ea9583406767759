"""The plan of a higher replication factor, which gives each partition of some topics more replicas.

A new replica stands last by preference, in a rack that has fewest of the partition, on the idlest disk there.
Leaders stay where they are. A topic of which one partition cannot have the factor is left out as a whole and
named; the others get it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rtolap.base.errors import DefinitionError, ImpossiblePlan, NotFound, RtolapError
from rtolap.fleet.planning.idlest import IdlestDisks
from rtolap.fleet.planning.placement import Placement
from rtolap.fleet.planning.plan import Bounds, LeftOut, Limits, Plan, PlanKind, plan_of, refuse_missing
from rtolap.fleet.planning.refusals import left_out_text, unmovable
from rtolap.fleet.snapshot.model import FleetSnapshot, Int64s


def plan_factor(
    snapshot: FleetSnapshot, topics: Sequence[str], factor: int, *, limits: Limits = Limits()
) -> Plan:
    """Plan another replication factor. Raises NotFound for an unknown topic. Where no topic at all can have
    the factor, raises why: DefinitionError for a factor that is lower than a topic has, ImpossiblePlan for
    one above the brokers or the racks that serve, and others."""
    refuse_missing(snapshot, PlanKind.FACTOR)
    requested = _partitions(snapshot, topics)
    refused: dict[int, RtolapError] = {}
    while True:
        owners = snapshot.partitions.topics[requested]
        partitions = requested[~np.isin(owners, list(refused))]
        if not partitions.size and refused:
            raise next(iter(refused.values()))
        placement = Placement(snapshot, disk_limit=limits.disk_limit, slots=factor, allowed=limits.allowed)
        cannot = _refusals(placement, partitions, factor) or _add(placement, partitions, factor)
        if not cannot:
            break
        refused |= cannot
    before = np.diff(snapshot.partitions.first_replicas)
    short = partitions[before[partitions] < factor]
    added = int((factor - before[short]).sum())
    needed = int((placement.partition_bytes[short] * (factor - before[short])).sum())
    left_out = tuple(
        LeftOut(snapshot.topics.names[topic], str(error)) for topic, error in sorted(refused.items())
    )
    return plan_of(
        placement,
        PlanKind.FACTOR,
        [("factor", str(factor)), ("topics", ",".join(sorted(set(topics))))],
        [
            f"{short.size} of {requested.size} partitions get {added} replicas more.",
            *left_out_text(left_out),
        ],
        Bounds(needed, 0),
        limits=limits,
        left_out=left_out,
    )


def _refusals(placement: Placement, partitions: Int64s, factor: int) -> dict[int, RtolapError]:
    """Return by topic why it cannot have the factor, whatever room there is."""
    snapshot = placement.snapshot
    owners = snapshot.partitions.topics
    found: dict[int, RtolapError] = {}
    goal = f"a factor of {factor}"
    racked = any(rack is not None for rack in snapshot.brokers.racks)
    able = placement.racks_able if racked else int(placement.able.sum())
    for topic in np.unique(owners[partitions]).tolist():
        mine = partitions[owners[partitions] == topic]
        most = int(placement.factors[mine].max(initial=1))
        short = mine[placement.factors[mine] < factor]
        if factor < most:
            found[topic] = DefinitionError(
                f"a plan raises replication factors, and {snapshot.topics.names[topic]} has more",
                expected=f"{most} replicas or more",
                found=factor,
            )
        elif short.size and factor > able:
            found[topic] = ImpossiblePlan(
                f"{goal}: there are too few {'racks' if racked else 'brokers'} that serve",
                expected=f"at most {able}",
                found=factor,
            )
        else:
            for _, error in unmovable(placement, short, goal)[:1]:
                found[topic] = error
    return found


def _add(placement: Placement, partitions: Int64s, factor: int) -> dict[int, RtolapError]:
    """Add the replicas, those of the largest partitions first. Return the topic for which there is no place,
    with the reason; the placement is of no use then."""
    short = partitions[placement.factors[partitions] < factor]
    disks = IdlestDisks(placement, np.zeros(len(placement.snapshot.log_dirs), np.bool_))
    order = short[np.argsort(-placement.partition_bytes[short], kind="stable")]
    for partition in order.tolist():
        try:
            while placement.factors[partition] < factor:
                disks.another(partition, f"a factor of {factor}")
        except ImpossiblePlan as error:
            return {int(placement.snapshot.partitions.topics[partition]): error}
    return {}


def _partitions(snapshot: FleetSnapshot, topics: Sequence[str]) -> Int64s:
    rows = {name: row for row, name in enumerate(snapshot.topics.names)}
    unknown = sorted(set(topics) - rows.keys())
    if unknown or not topics:
        raise NotFound(f"the snapshot of {snapshot.cluster_id} has no such topic", found=unknown)
    return np.flatnonzero(np.isin(snapshot.partitions.topics, [rows[name] for name in topics]))
