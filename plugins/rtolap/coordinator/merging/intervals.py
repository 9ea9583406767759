"""The intervals of a cube that can be merged now: a pure function of its records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from rtolap.metadata.merging.units import whole_sets
from rtolap.metadata.records import CubeControl, SegmentRecord
from rtolap.model.cube import MergePolicy
from rtolap.model.merging.intervals import MergeLevel, interval_of
from rtolap.model.segment import SegmentRange, SegmentState

MEMBERS_MIN = 2
MEMBERS_MAX = 1_500  # a month of half hours: their records are one commit


class Verdict(StrEnum):
    """The verdict on an interval.

    MERGE: its segments can be merged now. MERGED: they are one set. TOO_NEW: the watermark is not far enough
    beyond it. SINGLE: there are not two segments to merge. REFUSED: a segment stands in the way.
    """

    MERGE = "MERGE"
    MERGED = "MERGED"
    TOO_NEW = "TOO_NEW"
    SINGLE = "SINGLE"
    REFUSED = "REFUSED"


class Interval(NamedTuple):
    """An interval of a level.

    Attributes:
        members: its READY segments beyond the purge horizon, by start.
        reason: of a refusal.
    """

    level: MergeLevel
    range: SegmentRange
    members: tuple[SegmentRecord, ...]
    verdict: Verdict
    reason: str = ""


def intervals(
    policy: MergePolicy,
    control: CubeControl,
    records: Mapping[str, SegmentRecord],
    level: MergeLevel,
    watermark_ms: int | None,
) -> list[Interval]:
    """Return the intervals with segments, by start. `watermark_ms`: the cube's, None where it has none."""
    by_interval: dict[SegmentRange, list[SegmentRecord]] = {}
    for record in sorted(records.values(), key=lambda record: record.start_ms):
        if record.state is not SegmentState.PURGED:
            by_interval.setdefault(interval_of(level, record.start_ms), []).append(record)
    until_ms = None if watermark_ms is None else watermark_ms - policy.after_ms
    return [_judged(level, each, tuple(members), control, until_ms) for each, members in by_interval.items()]


def _judged(
    level: MergeLevel,
    interval: SegmentRange,
    members: tuple[SegmentRecord, ...],
    control: CubeControl,
    until_ms: int | None,
) -> Interval:
    def judged(verdict: Verdict, reason: str = "") -> Interval:
        return Interval(level, interval, members, verdict, reason)

    if until_ms is None or interval.end_ms > until_ms:
        return judged(Verdict.TOO_NEW)
    if control.horizon_ms is not None and control.horizon_ms > interval.start_ms:
        return judged(Verdict.REFUSED, "the purge horizon is in it")
    if any(record.end_ms > interval.end_ms for record in members):
        return judged(Verdict.SINGLE)
    if any(each[0].merged and len(each) == len(members) for each in _of_level(members, level)):
        return judged(Verdict.MERGED)
    if len(members) > MEMBERS_MAX:
        return judged(Verdict.REFUSED, f"{len(members)} segments are more than {MEMBERS_MAX}")
    if reason := next(filter(None, map(_hindrance, members)), ""):
        return judged(Verdict.REFUSED, reason)
    return judged(Verdict.MERGE if len(members) >= MEMBERS_MIN else Verdict.SINGLE)


def _of_level(members: Iterable[SegmentRecord], level: MergeLevel) -> list[list[SegmentRecord]]:
    """Return the members of each set of the level that is whole among the records."""
    return [
        named
        for location, named in whole_sets(members).items()
        if any(each.location == location and each.level == level for each in named[0].merged)
    ]


def _hindrance(record: SegmentRecord) -> str:
    if record.state is not SegmentState.READY:
        return f"{record.name} is {record.state.value}"
    if record.location is None:
        return f"{record.name} has no location"
    return ""
