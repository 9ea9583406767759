"""Merging of segments: levels and their intervals, and the work of one Spark job (`merge_segments.py`).

A merge writes the rows of several READY versions a second time, merged into one set of files. It changes
nothing of what the versions hold. Intervals are those of the calendar in UTC, as segments are.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from rtolap.model.cube import Cube, MergePolicy, Schema
from rtolap.model.segment import SegmentRange
from rtolap.model.table import Table

MergeLevel = Literal["day", "month"]
LEVELS: tuple[MergeLevel, ...] = ("day", "month")  # finest first
MERGE_ID = re.compile(r"[0-9a-f]{32}")
DAY_MS = 86_400_000


def interval_of(level: MergeLevel, instant_ms: int) -> SegmentRange:
    """Return the interval of the level that holds an instant."""
    day_ms = instant_ms // DAY_MS * DAY_MS
    if level == "day":
        return SegmentRange(day_ms, day_ms + DAY_MS)
    first = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=day_ms)).replace(day=1)
    following = (first + timedelta(days=32)).replace(day=1)
    return SegmentRange(_ms(first), _ms(following))


def _ms(instant: datetime) -> int:
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def levels_of(policy: MergePolicy) -> tuple[MergeLevel, ...]:
    """Return the levels of a policy, finest first."""
    return tuple(level for level in LEVELS if level in policy.to)


class MergeMember(msgspec.Struct, frozen=True):
    """A version whose rows a set holds. `events`: the number of its events."""

    segment: str
    version: int
    location: str
    events: int


class MergeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The work of one merge. All that decides the result is in it.

    Attributes:
        merge: its id, new for each plan: two attempts never share a folder.
        start_ms, end_ms: the interval.
        members: the versions, by start. Each is read from its base cuboid.
        object_store: the root of the object store, any pyarrow.fs URI.
        folder: `merged/<cube>/<cube id>/<level>/<merge>`; the plan is there.
        location: the folder of the set's files, below it.
    """

    merge: str
    cube: str
    level: MergeLevel
    start_ms: int
    end_ms: int
    members: tuple[MergeMember, ...]
    table_definition: Table
    cube_definition: Cube
    object_store: str
    folder: str

    @property
    def location(self) -> str:
        return f"{self.folder}/set"

    @property
    def interval(self) -> SegmentRange:
        return SegmentRange(self.start_ms, self.end_ms)

    @property
    def events(self) -> int:
        return sum(member.events for member in self.members)

    @property
    def schema(self) -> Schema:
        return Schema(self.table_definition, self.cube_definition)
