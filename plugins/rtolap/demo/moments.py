"""The stages of the events of a cube at a moment, out of what coordinator and receivers report. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from rtolap.protocols.coordinator.messages import QueueEntry, SegmentInfo
from rtolap.protocols.receiver.messages import CubeStats, ReceiverStats


class Moment(StrEnum):
    MEMORY = "in memory"
    FRAGMENTS = "in fragments"
    UPLOADED = "uploaded"
    BUILDING = "being built"
    READY = "READY"
    LATE = "late merged"
    END = "at the end"


class Situation(NamedTuple):
    """The state of a cube at one look.

    Attributes:
        pending: segments on their way into history, late deltas included.
        receivers: what each of them does.
    """

    moments: frozenset[Moment]
    states: dict[str, int]
    building: int
    pending: int
    receivers: tuple[str, ...] = ()


def situation(
    cube: str,
    segments: Sequence[SegmentInfo],
    queue: Sequence[QueueEntry],
    receivers: Sequence[ReceiverStats],
) -> Situation:
    """Return the present situation. Several moments hold at once while some segments are further than
    others."""
    local = [
        segment
        for stats in receivers
        for each in stats.cubes
        if each.cube == cube
        for segment in each.segments
    ]
    versions = {segment.segment: segment.version for segment in segments}
    queued = [entry for entry in queue if entry.cube == cube]
    building = sum(1 for entry in queued if entry.building)
    holds = {
        Moment.MEMORY: any(segment.memory_rows for segment in local),
        Moment.FRAGMENTS: any(segment.fragments for segment in local),
        Moment.UPLOADED: any(segment.state == "REMOTE_PERSISTED" for segment in segments),
        Moment.BUILDING: building > 0,
        Moment.READY: any(version >= 1 for version in versions.values()),
        Moment.LATE: any(version >= 2 for version in versions.values()),
    }
    states: dict[str, int] = {}
    for segment in segments:
        states[segment.state] = states.get(segment.state, 0) + 1
    late = {each.segment for each in local if each.events and each.version > 1}
    under_way = {each.segment for each in segments if each.state in ("IMMUTABLE", "REMOTE_PERSISTED")}
    return Situation(
        frozenset(moment for moment, is_so in holds.items() if is_so),
        states,
        building,
        len(late | under_way | {entry.segment for entry in queued}),
        tuple(sorted({_doing(each) for stats in receivers for each in stats.cubes if each.cube == cube})),
    )


def _doing(stats: CubeStats) -> str:
    return f"{stats.state.lower()}: {stats.reason}" if stats.reason else stats.state.lower()
