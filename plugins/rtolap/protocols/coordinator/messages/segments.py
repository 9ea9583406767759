"""Segments, the queue of those that wait for Spark, and builds."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rtolap.model.completeness import BY_MAX, REASON_MAX
from rtolap.protocols.rest.messages import Definition, Message


class PartitionRange(Message):
    partition: int
    start: int
    end: int


class PartInfo(Message):
    """A staged part. `path` is a folder in the object store, relative to its root."""

    replica_set: str
    path: str
    ranges: tuple[PartitionRange, ...]
    rows: int
    events: int
    bytes: int


class BuildInfo(Message):
    build_id: str
    version: int
    started_ms: int
    location: str
    error: str | None = None


class HistoryEntry(Message):
    at_ms: int
    event: str
    state: str
    note: str = ""


class CompletenessInfo(Message):
    """Completeness of a segment's events as known when its closing was decided: `model.completeness`, where
    each field is explained.
    """

    application: str
    window_end_ms: int
    closed_by: Literal["watermark", "approval", "forced"]
    watermark_ms: int | None = None
    expected_missing_ppm: int | None = None
    bound_ppm: int | None = None
    approved_by: str | None = None


class LossInfo(Message):
    """Offsets whose events are lost for good, and who accepted that. `model.completeness` explains each
    field."""

    ranges: tuple[PartitionRange, ...]
    start_ms: int
    end_ms: int
    whole: tuple[str, ...] = ()
    by: str
    reason: str
    at_ms: int


class SegmentInfo(Message):
    """A segment's record as it stands. `segment` is its name, `start_ms`–`end_ms` its event time.

    Attributes:
        covered: the vector of the READY version. A list leaves it out for segments that are READY or PURGED:
            request the segment itself.
        events: of the READY version; None while there is no history.
        staged_events: events in the staged parts of the next version, without those that receivers still
            have; None while there is no staged part.
        staged_rows: rows that those events were rolled up to; None as above.
        completeness: None while it is open, and for a cube without an application.
        late_events: of the READY version, those beyond its first version; None while there is no history.
        late_ppm: share of late events among its events, in parts per million; None as above.
        breached: more events are late than `completeness` stated at most when it closed.
        lost: offsets that neither receivers nor Kafka hold: it waits until they are there, or accepted.
        losses: those that were accepted: its versions, the next one included, lack their events.
        base_lost: its READY version has lost what builds start from: the next one is made of all its events,
            read from Kafka again. Statements that its other cuboids answer go on.
        pending_batch: the batch that its next version is made of; "" for none.
        batch: the batch that its READY version began with; "" for none.
        merged: the levels to which its READY version is merged, "day" and "month".
    """

    cube: str
    segment: str
    start_ms: int
    end_ms: int
    state: str
    version: int
    location: str | None = None
    covered: dict[int, int] = Field(default_factory=dict)
    target: dict[int, int] = Field(default_factory=dict)
    parts: tuple[PartInfo, ...] = ()
    build: BuildInfo | None = None
    events: int | None = None
    staged_events: int | None = None
    staged_rows: int | None = None
    completeness: CompletenessInfo | None = None
    late_events: int | None = None
    late_ppm: int | None = None
    breached: bool = False
    lost: tuple[PartitionRange, ...] = ()
    losses: tuple[LossInfo, ...] = ()
    base_lost: bool = False
    pending_batch: str = ""
    batch: str = ""
    merged: tuple[str, ...] = ()
    state_history: tuple[HistoryEntry, ...] = ()


class SegmentColumns(Message):
    """All segments of a cube by columns, in the order of their starts, in a tenth of the bytes.

    Attributes:
        parts: how many staged parts there are.
        noted: whole messages of those that a person should look at: they wait for a build or for lost events,
            are under way, or breached their bound, or a batch replaced them.
    """

    segment: tuple[str, ...]
    start_ms: tuple[int, ...]
    end_ms: tuple[int, ...]
    state: tuple[str, ...]
    version: tuple[int, ...]
    parts: tuple[int, ...]
    events: tuple[int | None, ...]
    late_events: tuple[int | None, ...]
    noted: tuple[SegmentInfo, ...]


class CuboidInfo(Message):
    """A cuboid of a version of a segment in history: its rows, files, and their bytes."""

    name: str
    dimensions: tuple[str, ...]
    rows: int
    files: int
    bytes: int


class SegmentCuboids(Message):
    """The cuboids of a segment's READY version, as its manifest has them; the largest first."""

    segment: str
    version: int
    cuboids: tuple[CuboidInfo, ...]


class QueueEntry(Message):
    """A segment that waits for a build. `version` is the one to be built.

    Attributes:
        building: an attempt is under way.
        waits_for: an earlier segment has to be promoted first.
        completeness: by what it was closed; None for a cube without an application.
    """

    cube: str
    segment: str
    start_ms: int
    end_ms: int
    version: int
    parts: int
    events: int
    building: bool = False
    build: BuildInfo | None = None
    waits_for: str | None = None
    completeness: CompletenessInfo | None = None


class Queue(Message):
    """Ordered by segment start, then by cube."""

    entries: tuple[QueueEntry, ...] = ()


class BuildSpecMessage(Message):
    """All that a Spark build needs: the JSON of `model.build_spec.BuildSpec`, where each field is explained.

    Folders are relative to `object_store`.

    Attributes:
        covered: the vector that the new version will hold: what history covers, merged with the target.
        previous_location: folder of the READY version whose events go into the new one; None for the first,
            and where the parts hold all of the segment: its base is lost, or a batch takes its place.
        previous_covered: the vector of that version.
        location: the folder to write: no other attempt writes there.
    """

    build_id: str
    cube: str
    segment: str
    start_ms: int
    end_ms: int
    version: int
    table_definition: Definition
    cube_definition: Definition
    parts: tuple[PartInfo, ...]
    previous_location: str | None = None
    previous_covered: dict[int, int] = Field(default_factory=dict)
    first_offsets: dict[int, int] = Field(default_factory=dict)
    covered: dict[int, int]
    object_store: str
    location: str
    completeness: CompletenessInfo | None = None
    first_events: int | None = None
    losses: tuple[LossInfo, ...] = ()
    base_lost: bool = False
    batch: str = ""


class FailRequest(Message):
    error: str = Field(max_length=4000)


class AcceptLossRequest(Message):
    """A person accepts that events are lost.

    Attributes:
        by: who accepts it.
    """

    by: Annotated[str, Field(min_length=1, max_length=BY_MAX)]
    reason: Annotated[str, Field(min_length=1, max_length=REASON_MAX)]
