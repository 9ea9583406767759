"""The cluster on one page: its services, sums over its cubes, and what needs a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rtolap.airflow.page.figures import figures
from rtolap.airflow.page.messages import Overview, Service
from rtolap.airflow.page.problems import problems_of
from rtolap.airflow.page.tasks import task_link
from rtolap.protocols.agent.messages import ProcessStatus
from rtolap.protocols.coordinator.messages import ClusterInfo, QueueEntry

_HEALTHY = "HEALTHY"


def overview_of(
    cluster: ClusterInfo,
    queue: tuple[QueueEntry, ...],
    processes: Sequence[ProcessStatus],
    *,
    now_ms: int,
    agent_error: str = "",
) -> Overview:
    """Return the overview. agent_error: why `processes` could not be read; empty if they were."""
    each = [figures(cluster.receivers, cube.name) for cube in cluster.cubes]
    rates = [one.records_per_s for one in each if one.records_per_s is not None]
    segments: Counter[str] = Counter()
    for cube in cluster.cubes:
        segments.update(cube.segments)
    return Overview(
        now_ms=now_ms,
        leader_url=cluster.leader_url,
        services=(*_coordinators(cluster), *_receivers(cluster), *_processes(processes)),
        problems=problems_of(cluster, queue),
        cubes=len(cluster.cubes),
        cubes_enabled=sum(cube.enabled and not cube.paused for cube in cluster.cubes),
        records_per_s=sum(rates) if rates else None,
        lag_records=sum(one.lag_records for one in each),
        freshness_ms=max((one.freshness_ms for one in each if one.freshness_ms is not None), default=None),
        held_bytes=sum(
            report.held_bytes or 0
            for receiver in cluster.receivers
            for cube in receiver.cubes.values()
            for report in cube.partitions.values()
        ),
        segments=dict(segments),
        agent_error=agent_error,
    )


def _coordinators(cluster: ClusterInfo) -> Iterator[Service]:
    for url in sorted(cluster.coordinators):
        leads = url == cluster.leader_url
        yield Service(role="coordinator", name=url, state=_HEALTHY, detail="leads" if leads else "stands by")


def _receivers(cluster: ClusterInfo) -> Iterator[Service]:
    for one in sorted(cluster.receivers, key=lambda each: each.receiver_id):
        yield Service(
            role="receiver",
            name=one.receiver_id,
            state=one.health,
            detail=one.reason or f"replica set {one.replica_set}",
            seen_ms=one.last_seen_ms,
        )


def _processes(processes: Sequence[ProcessStatus]) -> Iterator[Service]:
    for process in sorted(processes, key=lambda each: each.key):
        healthy = process.state in ("RUNNING", "SUCCEEDED")
        yield Service(
            role="process of the agent",
            name=process.key,
            state=_HEALTHY if healthy else process.state,
            detail=process.reason or (process.state if healthy else ""),
            seen_ms=process.changed_ms,
            task=task_link(process),
        )
