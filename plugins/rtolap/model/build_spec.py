"""What one Spark build has to do: the coordinator writes it, `spark_jobs/build_segment.py` reads it.

A build makes version *n + 1* of one segment out of the staged parts of that version and, if there is one,
the base cuboid of version *n*. Everything that decides the result stands in the spec, so a repeated build
of the same spec gives the same rows. Paths are relative to the object store's root.
"""

from __future__ import annotations

import msgspec

from rtolap.model.cube import Cube, Schema
from rtolap.model.offsets import Offsets, PartRange
from rtolap.model.segment import SegmentRange
from rtolap.model.table import Table


class BuildPart(msgspec.Struct, frozen=True):
    """One staged part: a folder with a StagedManifest whose ranges, rows and events are stated here too."""

    replica_set: str
    path: str
    ranges: tuple[PartRange, ...]
    rows: int
    events: int


class BuildSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to build one version of one segment.

    build_id            unique per attempt; part of `location`, so attempts never share a folder
    version             the version to be built (the record's version + 1)
    start_ms, end_ms    the segment, `[start_ms, end_ms)` in UTC
    first               partition → offset from which the parts must join: what the previous version
                        covers, or where the cube begins
    covered             partition → next offset: what the new version will cover (the record's covered
                        with its target laid over it); parts must join up to it
    parts               staged parts of `version`; none when a READY version is built anew from itself
    previous_location   folder of the version before, or None for the first one
    previous_events     events that the version before holds, 0 for the first one
    object_store_uri    root of the object store, any pyarrow.fs URI
    location            folder to write: `history/<cube>/<segment>/v<version>-<build_id>`
    """

    build_id: str
    table: Table
    cube: Cube
    start_ms: int
    end_ms: int
    version: int
    first: Offsets
    covered: Offsets
    parts: tuple[BuildPart, ...] = ()
    previous_location: str | None = None
    previous_events: int = 0
    object_store_uri: str
    location: str

    @property
    def schema(self) -> Schema:
        return Schema(self.table, self.cube)

    @property
    def range(self) -> SegmentRange:
        return SegmentRange(self.start_ms, self.end_ms)

    @property
    def segment(self) -> str:
        return self.range.name


class BuildResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a finished build reports: the promotion's arguments and some numbers for people."""

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
