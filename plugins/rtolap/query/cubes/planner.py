"""The planner decides from a cube read and one snapshot of the cluster what is read from where. Its functions
are pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from rtolap.base.addresses import host_port
from rtolap.metadata.records import CubeControl, SegmentRecord, standing
from rtolap.model.predicate import And, Compare
from rtolap.protocols.receiver.messages import HistorySnapshot
from rtolap.query.cluster.topology import ReceiverTopology
from rtolap.query.plan import CubeRead, HistoryPlan, LatestRows, ReplicaSetPlan
from rtolap.query.sql.pruning import time_range
from rtolap.query.sql.timeline import text


def plan_history(read: CubeRead, control: CubeControl, records: Mapping[str, SegmentRecord]) -> HistoryPlan:
    """Return every READY version in range and beyond the purge horizon, whatever else its segment is
    doing.

    `records`: those of the pages that the range touches. What else these hold is named as pruned.
    """
    ready = standing(control, records)
    chosen = tuple(record for record in ready if read.time.overlaps(record.start_ms, record.end_ms))
    names = {record.name for record in chosen}
    pruned = tuple(record.name for record in ready if record.name not in names)
    snapshot = HistorySnapshot(
        versions={record.name: record.version for record in chosen},
        horizon_ms=control.horizon_ms,
        start_ms=read.time.start_ms,
        end_ms=read.time.end_ms,
        assignment_epoch=control.assignment_epoch,
    )
    return HistoryPlan(chosen, pruned, snapshot)


def plan_realtime(cube: str, control: CubeControl, topology: ReceiverTopology) -> tuple[ReplicaSetPlan, ...]:
    """Return a plan for each replica set that has the cube, even without live receivers.

    The preferred receiver is the same for all queries of a cube, so that its caches stay warm: it is chosen
    by a hash over the live receivers, in order of their names. A receiver that is not known to be live gets
    no request.
    """
    plans = []
    for name, partitions in sorted(control.assignment.items()):
        record = topology.replica_sets.get(name)
        members = () if record is None else record.receivers
        live = sorted(r for r in members if r in topology.live and r in topology.receivers)
        first = zlib.crc32(cube.encode()) % len(live) if live else 0
        ordered = live[first:] + live[:first]
        addresses = tuple(
            (receiver, host_port(topology.receivers[receiver].host, topology.receivers[receiver].port))
            for receiver in ordered
        )
        plans.append(ReplicaSetPlan(name, tuple(partitions), addresses))
    return tuple(plans)


def narrowed(read: CubeRead, latest: LatestRows, segments: Iterable[SegmentRecord]) -> Iterator[CubeRead]:
    """Roll-up rows with a LIMIT: only as much of the cube is read as gives that many, the latest first.

    A condition on a time dimension among the keys leaves whole groups out and never cuts one: the groups
    beyond a threshold are complete, whatever lies before it. So the statement is run beyond the latest
    segment, then beyond twice as many, until it has its rows: the read beyond 1, 2, 4, … segments, and at
    last as it is.
    """
    zone = ZoneInfo(read.schema.table.time.zone)
    starts_ms = sorted(
        (segment.start_ms for segment in segments if read.time.overlaps(segment.start_ms, segment.end_ms)),
        reverse=True,
    )
    count = 1
    while count < len(starts_ms):
        local = datetime.fromtimestamp(starts_ms[count - 1] / 1000, UTC).astimezone(zone).replace(tzinfo=None)
        beyond = Compare(latest.key, "ge", text(local))
        condition = beyond if read.filter is None else And((read.filter, beyond))
        yield replace(read, filter=condition, time=time_range(condition, read.schema))
        count *= 2
    yield read
