"""Coordinator protocol, REST and JSON: its messages. Bearer token on everything but `/health`.

Errors: HTTP status of the error's class and `{"code", "message"}` (`RtolapError.to_dict`), plus
`leader_url` where a standby answers 503. A standby that knows its leader answers 307 to it.
Instants are milliseconds since the epoch; an offset means next-to-read.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

API = "/api/v1"

ReceiverHealth = Literal["HEALTHY", "WARN", "UNREACHABLE", "DOWN"]
Definition = dict[str, Any]  # a Table, Lookup or Cube as `msgspec.to_builtins` writes it


class Message(BaseModel):
    model_config = ConfigDict(frozen=True)


class Health(Message):
    """`leader_url` is None while nobody leads. Standbys are healthy too."""

    role: Literal["leader", "standby"]
    url: str
    leader_url: str | None = None
    zookeeper: bool = Field(description="is the session to ZooKeeper alive?")


# -- heartbeats -----------------------------------------------------------------------------------------


class PartitionReport(Message):
    """`idle`: at the log's end and silent for a while, so that it does not hold the watermark."""

    position: int
    log_end: int | None = None
    watermark_ms: int | None = None
    idle: bool = False


class CubeReport(Message):
    """`state`: CONSUMING | PAUSED | REPLAYING | STOPPED | FAILED, as the receiver's own stats say.

    `assignment_epoch` is the epoch of the assignment that the receiver follows. `active` names the segments
    that have local events and no record yet, so that people see them.
    """

    state: str
    reason: str = ""
    assignment_epoch: int = 0
    partitions: dict[int, PartitionReport] = {}
    active: tuple[str, ...] = ()


class HeartbeatRequest(Message):
    """Sent every second. `is_leader`: does it lead its replica set?"""

    receiver_id: str
    replica_set: str
    is_leader: bool = False
    cubes: dict[str, CubeReport] = {}


class HeartbeatResponse(Message):
    """`low_watermark_ms` by cube; a cube is missing while its watermark is unknown."""

    low_watermark_ms: dict[str, int] = {}


# -- receivers and replica sets -------------------------------------------------------------------------


class ReceiverInfo(Message):
    """`last_seen_ms` is None where this leader has had no heartbeat yet."""

    receiver_id: str
    host: str
    port: int
    replica_set: str
    health: ReceiverHealth
    reason: str = ""
    is_leader: bool = False
    last_seen_ms: int | None = None
    cubes: dict[str, CubeReport] = {}


class ReplicaSetInfo(Message):
    name: str
    receivers: tuple[str, ...]
    leader: str | None = None


class ReplicaSetRequest(Message):
    receivers: tuple[str, ...]


# -- cubes ----------------------------------------------------------------------------------------------


class CubeStatus(Message):
    """`problem`: what needs a human (topic gone, offsets beyond Kafka's retention, …); None if nothing."""

    name: str
    definition: Definition
    enabled: bool
    paused: bool
    horizon_ms: int | None = None
    first_offsets: dict[int, int] = {}
    assignment: dict[str, tuple[int, ...]] = {}
    assignment_epoch: int = 0
    replay_from: dict[int, int] = {}
    low_watermark_ms: int | None = None
    segments: dict[str, int] = Field(default={}, description="number of segments by state")
    problem: str | None = None


class ClusterInfo(Message):
    leader_url: str
    coordinators: tuple[str, ...]
    receivers: tuple[ReceiverInfo, ...]
    replica_sets: tuple[ReplicaSetInfo, ...]
    cubes: tuple[CubeStatus, ...]


class EnableRequest(Message):
    """`assigner` chooses among the published ones; None keeps the coordinator's own choice."""

    assigner: Literal["default", "round_robin"] | None = None


class PartitionWatermark(Message):
    watermark_ms: int | None
    idle: bool
    position: int
    log_end: int | None = None
    receiver_id: str
    reported_ms: int


class WatermarkInfo(Message):
    cube: str
    low_watermark_ms: int | None
    partitions: dict[int, PartitionWatermark] = {}


# -- segments and builds --------------------------------------------------------------------------------


class PartitionRange(Message):
    partition: int
    start: int
    end: int


class PartInfo(Message):
    """A staged part: `path` is a folder in the object store, relative to its root."""

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


class StoryEntry(Message):
    at_ms: int
    event: str
    state: str
    note: str = ""


class SegmentInfo(Message):
    """A segment's record as it stands. `segment` is its name, `start_ms`–`end_ms` its event time."""

    cube: str
    segment: str
    start_ms: int
    end_ms: int
    state: str
    version: int
    location: str | None = None
    covered: dict[int, int] = {}
    target: dict[int, int] = {}
    parts: tuple[PartInfo, ...] = ()
    build: BuildInfo | None = None
    events: int = 0
    story: tuple[StoryEntry, ...] = ()


class QueueEntry(Message):
    """A segment that waits for a build. `version` is the one to be built.

    `building`: an attempt is under way. `waits_for`: an earlier segment has to be promoted first.
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


class Queue(Message):
    """Ordered by segment start, then by cube."""

    entries: tuple[QueueEntry, ...] = ()


class BuildSpec(Message):
    """All that a Spark build needs: the JSON of `model.build_spec.BuildSpec`, where each field is explained.

    Folders are relative to `object_store`.

    covered             the vector that the new version will hold: what history covers, merged with the target
    previous_location   folder of the READY version whose events go into the new one, None for the first
    previous_covered    its vector
    location            the folder to write: no other attempt writes there
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
    previous_covered: dict[int, int] = {}
    first_offsets: dict[int, int] = {}
    covered: dict[int, int]
    object_store: str
    location: str


class FailRequest(Message):
    error: str = Field(max_length=4000)


class PurgeRequest(Message):
    """Segments that end at or below `before_ms` are dropped for ever."""

    before_ms: int


class PurgeResult(Message):
    horizon_ms: int | None
    segments: tuple[str, ...] = ()


class CleanupResult(Message):
    """Folders deleted from the object store, and records of purged segments removed."""

    folders: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
