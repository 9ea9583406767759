"""Cubes in a list, and one cube with its watermark, its refused records and its segments."""

from __future__ import annotations

from collections import Counter

from rtolap.airflow.page.figures import figures
from rtolap.airflow.page.messages import (
    CubeList,
    CubePage,
    CubeRow,
    FailedBuild,
    LateEvent,
    Partition,
    Refused,
    Segments,
    Switched,
)
from rtolap.airflow.page.problems import problems_of
from rtolap.base.decoding import copied
from rtolap.model.segment import SegmentRange
from rtolap.protocols.coordinator.messages import (
    ClusterInfo,
    CubeStatus,
    QueueEntry,
    SegmentColumns,
    SegmentInfo,
    WatermarkInfo,
)


def cubes_of(cluster: ClusterInfo, queue: tuple[QueueEntry, ...], *, now_ms: int) -> CubeList:
    """Return all cubes in the order of their names."""
    counts = Counter(problem.cube for problem in problems_of(cluster, queue))
    rows = [_row(cluster, cube, counts[cube.name]) for cube in cluster.cubes]
    return CubeList(now_ms, tuple(sorted(rows, key=lambda row: row.name)))


def cube_page(
    cluster: ClusterInfo,
    status: CubeStatus,
    watermark: WatermarkInfo,
    segments: SegmentColumns,
    queue: tuple[QueueEntry, ...],
    *,
    now_ms: int,
) -> CubePage:
    """Return one cube's page. queue: the entries of all cubes."""
    window_ms = int(dict(status.definition.get("segment") or {}).get("window_ms", 0))
    problems = tuple(each for each in problems_of(cluster, queue) if each.cube == status.name)
    return CubePage(
        now_ms=now_ms,
        cube=_row(cluster, status, len(problems)),
        table=str(status.definition.get("table", "")),
        topic_id=status.topic_id,
        horizon_ms=status.horizon_ms,
        window_ms=window_ms,
        partitions=_partitions(watermark),
        refused=tuple(
            Refused(reason=reason, records=records, example=status.refused_example.get(reason, ""))
            for reason, records in sorted(status.refused.items())
        ),
        problems=problems,
        move_waits=status.move_waits,
        segments=_segments(status.name, segments, queue),
        failed=tuple(
            FailedBuild(segment=each.segment, version=each.version, error=each.build.error)
            for each in queue
            if each.cube == status.name and each.build is not None and each.build.error
        ),
        late=_late(cluster, status.name, window_ms),
        switched=None if status.switched is None else copied(Switched, status.switched),
    )


def _late(cluster: ClusterInfo, cube: str, window_ms: int) -> tuple[LateEvent, ...]:
    """Return the last late events that receivers have read, each once, in the order of their places."""
    found: dict[tuple[int, int], LateEvent] = {}
    for receiver in cluster.receivers:
        for each in receiver.cubes[cube].late if window_ms and cube in receiver.cubes else ():
            start_ms = each.event_ms // window_ms * window_ms
            segment = SegmentRange(start_ms, start_ms + window_ms).name
            found[each.partition, each.offset] = copied(
                LateEvent, each, segment=segment, receiver=receiver.receiver_id
            )
    return tuple(found[place] for place in sorted(found))


def _row(cluster: ClusterInfo, cube: CubeStatus, problems: int) -> CubeRow:
    found = figures(cluster.receivers, cube.name)
    return CubeRow(
        name=cube.name,
        state="paused" if cube.enabled and cube.paused else "on" if cube.enabled else "off",
        low_watermark_ms=cube.low_watermark_ms,
        lag_records=found.lag_records,
        records_per_s=found.records_per_s,
        freshness_ms=found.freshness_ms,
        segments=dict(cube.segments),
        problems=problems,
    )


def _partitions(watermark: WatermarkInfo) -> tuple[Partition, ...]:
    """Return the partitions, those that hold the watermark back first: the lowest that are not idle."""
    found = [
        copied(Partition, each, partition=number, receiver=each.receiver_id)
        for number, each in watermark.partitions.items()
    ]
    return tuple(
        sorted(
            found,
            key=lambda each: (
                each.idle,
                each.watermark_ms is not None,
                each.watermark_ms or 0,
                each.partition,
            ),
        )
    )


def _segments(cube: str, found: SegmentColumns, queue: tuple[QueueEntry, ...]) -> Segments:
    waiting = {entry.segment: entry for entry in queue if entry.cube == cube}
    noted = {each.segment: each for each in found.noted}
    return copied(
        Segments,
        found,
        building=tuple(_is_building(waiting.get(each)) for each in found.segment),
        note=tuple(_note(noted.get(each), waiting.get(each)) for each in found.segment),
    )


def _is_building(entry: QueueEntry | None) -> bool:
    """Tell whether a build runs: a segment that is READY keeps its last build, and waits for none."""
    return entry is not None and entry.building


def _note(segment: SegmentInfo | None, entry: QueueEntry | None) -> str:
    waits = f"waits for {entry.waits_for}" if entry is not None and entry.waits_for else ""
    if segment is None:
        return waits
    if segment.build is not None and segment.build.error:
        return f"build failed: {segment.build.error}"
    if segment.base_lost:
        return "its files are lost"
    if segment.lost:
        return "events were lost: " + ", ".join(
            f"{each.partition}:{each.start}-{each.end}" for each in segment.lost
        )
    if segment.breached:
        return "more late events than its window's bound permits"
    return waits or (f"batch {segment.batch}" if segment.batch else "")
