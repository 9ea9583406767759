"""The work of one merge: `spark_jobs/merge_segments.py` reads it, as the coordinator plans it."""

from __future__ import annotations

import re

import msgspec

from rtolap.model.cube import Cube, Schema
from rtolap.model.merging.intervals import MergeLevel
from rtolap.model.segment import SegmentRange
from rtolap.model.table import Table

MERGE_ID = re.compile(r"[0-9a-f]{32}")


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
