"""The audit of racks: which partitions share one, and which could not be written without one.

Algorithm: replicas are counted by partition and rack. A partition stands in as many racks as it has replicas,
or as there are racks where its topic may stand. Without a rack, those of its replicas are left that are in
sync elsewhere; where they are fewer than `min.insync.replicas`, nobody writes. What a running reassignment
removes counts for today's writers, and not for where the partition is going to stand.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rtolap.fleet.isolation.findings import Finding, FindingKind, Severity, by_topic, numbers_of, some
from rtolap.fleet.isolation.placement import NO_RACK, PlacementRules, rack_codes, racks_within_reach
from rtolap.fleet.snapshot.model import BrokerState, Flags, FleetSnapshot, Int32s, Int64s, ReplicaState

_REPAIR = "rtolap fleet plan rack"


def rack_findings(
    snapshot: FleetSnapshot, placement: PlacementRules, min_in_sync: Int32s
) -> Iterator[Finding]:
    """Yield the findings about racks. `min_in_sync` is the setting in force of each topic."""
    if not placement.spread.any():
        return
    codes, racks = rack_codes(snapshot)
    yield from _without_rack(snapshot, codes)
    yield from _shared(snapshot, placement, codes)
    yield from _lost(snapshot, placement, codes, racks, min_in_sync)


def _without_rack(snapshot: FleetSnapshot, codes: Int32s) -> Iterator[Finding]:
    rows = np.flatnonzero((codes == NO_RACK) & (snapshot.brokers.states != BrokerState.ABSENT))
    if len(rows):
        ids = snapshot.brokers.ids[rows].tolist()
        yield Finding(
            kind=FindingKind.NO_RACK,
            severity=Severity.WARNING,
            subject=f"{len(ids)} brokers",
            message="replicas are to be spread over racks, and brokers name none",
            expected="broker.rack on every broker",
            found=f"none on {some(ids)}",
            repair="set broker.rack and restart the brokers, one rack at a time",
            brokers=tuple(ids),
        )


def _shared(snapshot: FleetSnapshot, placement: PlacementRules, codes: Int32s) -> Iterator[Finding]:
    replicas = snapshot.replicas
    staying = replicas.states != ReplicaState.REMOVING
    partitions = _partitions_by_rack(snapshot, codes, staying)
    topics = snapshot.partitions.topics
    stand_in = np.bincount(partitions, minlength=len(topics))
    with_rack = staying & (codes[replicas.brokers] != NO_RACK)
    counts = np.bincount(replicas.partitions[with_rack], minlength=len(topics))
    reach = racks_within_reach(placement, snapshot)[topics]
    wanted = np.minimum(counts, reach)
    for topic, rows in by_topic(
        snapshot, np.flatnonzero((stand_in < wanted) & placement.spread[topics]).astype(np.int64)
    ):
        worst = rows[np.argmin(stand_in[rows])]
        yield Finding(
            kind=FindingKind.SHARED_RACK,
            severity=Severity.WARNING,
            subject=snapshot.topics.names[topic],
            message=f"{len(rows)} partitions have replicas that share a rack",
            expected=f"replicas in {int(wanted[worst])} racks",
            found=f"partition {int(snapshot.partitions.numbers[worst])} in {int(stand_in[worst])}",
            repair=_REPAIR,
            partitions=numbers_of(snapshot, rows),
        )


def _lost(
    snapshot: FleetSnapshot,
    placement: PlacementRules,
    codes: Int32s,
    racks: tuple[str, ...],
    min_in_sync: Int32s,
) -> Iterator[Finding]:
    at_risk = (
        rack_losses(snapshot, codes, len(racks), min_in_sync) & placement.spread[snapshot.partitions.topics]
    )
    for topic, rows in by_topic(snapshot, np.flatnonzero(at_risk.any(axis=0)).astype(np.int64)):
        lost = [racks[rack] for rack in np.flatnonzero(at_risk[:, rows].any(axis=1))]
        least = int(min_in_sync[topic])
        yield Finding(
            kind=FindingKind.RACK_LOSS,
            severity=Severity.CRITICAL,
            subject=snapshot.topics.names[topic],
            message=f"{len(rows)} partitions could not be written without one rack",
            expected=f"{least} replicas in sync without any one rack",
            found=f"fewer without {some(lost)}",
            repair=_REPAIR,
            partitions=numbers_of(snapshot, rows),
        )


def rack_losses(snapshot: FleetSnapshot, codes: Int32s, racks: int, min_in_sync: Int32s) -> Flags:
    """Return by rack and partition whether writing, which goes on now, would end without the rack."""
    replicas, topics = snapshot.replicas, snapshot.partitions.topics
    in_sync = np.bincount(replicas.partitions[replicas.in_sync], minlength=len(topics))
    least = min_in_sync[topics]
    lost = np.zeros((racks, len(topics)), np.bool_)
    for rack in range(racks):
        there = replicas.in_sync & (codes[replicas.brokers] == rack)
        left = in_sync - np.bincount(replicas.partitions[there], minlength=len(topics))
        lost[rack] = (in_sync >= least) & (left < np.maximum(least, 1))
    return lost


def _partitions_by_rack(snapshot: FleetSnapshot, codes: Int32s, which: Flags) -> Int64s:
    """Return each partition once for every rack that has one of these replicas of it."""
    rack = codes[snapshot.replicas.brokers]
    chosen = which & (rack != NO_RACK)
    span = int(codes.max(initial=0)) + 1
    pairs = np.sort(snapshot.replicas.partitions[chosen].astype(np.int64) * span + rack[chosen])
    first = np.ones(len(pairs), np.bool_)
    first[1:] = pairs[1:] != pairs[:-1]
    partitions: Int64s = pairs[first] // span
    return partitions
