"""The work of one Spark build: `spark_jobs/build_segment.py` reads it.

The coordinator's response to a started build (`protocols.coordinator.messages.segments.BuildSpec`) is this
same JSON. A build makes version *n + 1* of one segment out of the staged parts of that version and, if there
is one, the base cuboid of version *n*. Everything that decides the result stands in the spec, so that a
repeated build of the same spec gives the same rows. Paths are relative to the object store's root.
"""

from __future__ import annotations

import msgspec

from rtolap.model.completeness import Completeness, EventLoss
from rtolap.model.cube import Cube, Schema
from rtolap.model.offsets import Offsets, PartRange
from rtolap.model.segment import SegmentRange
from rtolap.model.table import Table


class BuildPart(msgspec.Struct, frozen=True):
    """A staged part, which is a folder whose StagedManifest states the same ranges, rows and events."""

    replica_set: str
    path: str
    ranges: tuple[PartRange, ...]
    rows: int
    events: int


class BuildSpec(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt to build a version of a segment.

    Attributes:
        build_id: unique per attempt; part of `location`, so attempts never share a folder.
        version: the version to build (the record's version + 1).
        parts: staged parts of `version`; none when a READY version is rebuilt from itself.
        previous_location: folder of the previous version; None for the first one and where `is_rebuilt`.
        previous_covered: vector of the previous version.
        first_offsets: where the cube begins; a partition in neither vector begins at its first part.
        covered: partition → next offset that the new version will cover; parts must join up to it.
        object_store: root of the object store, any pyarrow.fs URI.
        location: folder to write: `history/<cube>/<cube id>/<segment>/v<version>-<build_id>`.
        completeness: of the first version, when its closing was decided; None without an application.
        first_events: number of events of the first version; None before there is one, and where it is
            unknown.
        losses: offsets whose events the new version lacks; see `model.completeness`.
        base_lost: True where the previous version has lost what builds start from: the parts hold the whole
            segment.
        batch: id of the batch that the version is made of: its part holds the whole segment. "" for none.
    """

    build_id: str
    cube: str
    segment: str
    start_ms: int
    end_ms: int
    version: int
    table_definition: Table
    cube_definition: Cube
    parts: tuple[BuildPart, ...] = ()
    previous_location: str | None = None
    previous_covered: Offsets = {}
    first_offsets: Offsets = {}
    covered: Offsets
    object_store: str
    location: str
    completeness: Completeness | None = None
    first_events: int | None = None
    losses: tuple[EventLoss, ...] = ()
    base_lost: bool = False
    batch: str = ""

    @property
    def is_rebuilt(self) -> bool:
        """Return True if the parts hold the whole segment, whatever the previous version holds."""
        return self.base_lost or bool(self.batch)

    def late_events(self, events: int) -> int | None:
        """Return the number of these that came after the first version; None where nobody knows."""
        first_events = events if self.version == 1 else self.first_events
        return None if first_events is None else events - first_events

    @property
    def schema(self) -> Schema:
        return Schema(self.table_definition, self.cube_definition)

    @property
    def range(self) -> SegmentRange:
        return SegmentRange(self.start_ms, self.end_ms)


class BuildResult(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a finished build: some numbers for people."""

    build_id: str
    cube: str
    segment: str
    version: int
    location: str
    events: int
    base_rows: int
    cuboids: int
    bytes: int
    duration_ms: int
