"""Messages about cubes: their switches, their consumers, their watermarks, and their purges."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from rtolap.model.completeness import BY_MAX, REASON_MAX
from rtolap.protocols.coordinator.messages.members import ReceiverInfo, ReplicaSetInfo
from rtolap.protocols.rest.messages import Definition, Message
from rtolap.protocols.watermark.messages import ApplicationOwner

LevelledBy = Literal["count", "load"]


class SwitchedInfo(Message):
    """Who has turned a switch of a cube last, to `enable`, `disable`, `pause` or `resume`."""

    to: str
    by: str
    reason: str
    at_ms: int


class CubeStatus(Message):
    """A cube, its definition and where it stands.

    Attributes:
        problem: what needs a human (topic gone, offsets beyond Kafka's retention, …); None if nothing.
        catching_up: partitions that no receiver of their replica set consumes at the log's end yet, after a
            start or a reassignment; queries wait for them.
        next_assignment: the assignment that a running move prepares, of `next_epoch`; empty while none runs.
        move_waits: what the move waits for, a line each.
        move_reason: why the leader has planned the move by itself; "" where somebody asked, or none runs.
        assigned_because: why the leader has made the assignment by itself; "" where somebody asked.
        refused: reason → at least so many records of the topic were refused and are in no count.
        refused_example: reason → what was wrong with one of them.
        switched: who has enabled, disabled, paused or resumed it last; None while nobody has.
        revisions: the cubes that hold later events of it, see `rtolap.model.evolution.revisions`.
        ended: an older revision that accepts no event any more; nobody reads the topic for it.
    """

    name: str
    definition: Definition
    enabled: bool
    paused: bool
    horizon_ms: int | None = None
    first_offsets: dict[int, int] = Field(default_factory=dict)
    topic_id: str = ""
    assignment: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    assignment_epoch: int = 0
    next_assignment: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    next_epoch: int | None = None
    move_waits: tuple[str, ...] = ()
    move_reason: str = ""
    assigned_because: str = ""
    catching_up: tuple[int, ...] = ()
    replay_from: dict[int, int] = Field(default_factory=dict)
    low_watermark_ms: int | None = None
    segments: dict[str, int] = Field(default_factory=dict, description="number of segments by state")
    problem: str | None = None
    refused: dict[str, int] = Field(default_factory=dict)
    refused_example: dict[str, str] = Field(default_factory=dict)
    revisions: tuple[str, ...] = ()
    ended: bool = False
    switched: SwitchedInfo | None = None


class SwitchRequest(Message):
    """A switch of a cube is turned. Who asks, and why, stays with the cube until it is turned again."""

    by: Annotated[str, Field(max_length=BY_MAX)] = ""
    reason: Annotated[str, Field(max_length=REASON_MAX)] = ""


class EnableRequest(SwitchRequest):
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
    partitions: dict[int, PartitionWatermark] = Field(default_factory=dict)


class ReassignRequest(Message):
    """Move partitions of a running cube between replica sets.

    Attributes:
        assignment: the whole assignment that is wanted; None requests a level one.
        replica_sets: those that a level assignment uses; None: as many live ones as the cube's
            `consumer_tasks_max` allows, those that hold partitions now first.
        by: what a level assignment levels: the number of partitions, or the load that receivers report.
        epoch: refuse if the assignment is not of this epoch any more.
        dry_run: answer the plan, change nothing.
        warm_up: True: the new owners read beside the old ones, which answer until the new ones can; the
            assignment changes then. False: it changes at once, and queries wait. None: with warm-up, unless
            nobody answers for what moves: the cube is switched off, or no old owner has a living receiver.
    """

    assignment: dict[str, tuple[int, ...]] | None = None
    replica_sets: tuple[str, ...] | None = Field(default=None, min_length=1)
    by: LevelledBy = "count"
    epoch: int | None = None
    dry_run: bool = False
    warm_up: bool | None = None


class AlterRequest(Message):
    """Change a running cube.

    Attributes:
        definition: the whole definition that is wanted.
        table: the definition of its table, which may have columns that the running one has not; None: the
            running one.
        dry_run: answer what it means, change nothing.
        drop_segments: go on where a shorter retention drops segments for good.
        new_revision: go on where the change takes a revision of the cube, from a moment on.
        since_ms: that moment; None: the end of the last segment that there is. Where older events are filled
            in, an earlier one, to which it moves back; None: the start of the first segment.
        renamed: column of the definition → the running one's column that it goes on with.
        older: of columns that a revision adds: NULL in older events, or statements about these are refused,
            or older events are filled in.
    """

    definition: Definition
    table: Definition | None = None
    dry_run: bool = False
    drop_segments: bool = False
    new_revision: bool = False
    since_ms: int | None = None
    renamed: dict[str, str] = Field(default_factory=dict)
    older: Literal["null", "refuse", "fill"] = "null"


class SettingChange(Message):
    """A setting with its values before and after, and what follows, in words."""

    setting: str
    before: Any = None
    after: Any = None
    meaning: str


class Alteration(Message):
    """The meaning of a change.

    Attributes:
        segments_without_new_cuboids: READY ones, which answer out of larger cuboids until they are built
            again.
        dropped_segments: those that the next retention drops because of the change.
        revision: the cube that holds the events from `since_ms` on; None: the change is made in place.
        fills_from_ms: the moment moves back to here as older events are filled in; None: none are.
        filled_by: whether they come from the topic, or from batches that a person applies.
        added_columns: dimensions and partials that older events do not have.
        gone_columns: those that statements can name no more.
        table_columns: those that the table gets.
        applied: True if the cube has the definition now.
    """

    cube: str
    changes: tuple[SettingChange, ...]
    new_cuboids: tuple[str, ...] = ()
    gone_cuboids: tuple[str, ...] = ()
    segments_without_new_cuboids: tuple[str, ...] = ()
    dropped_segments: tuple[str, ...] = ()
    revision: str | None = None
    since_ms: int | None = None
    fills_from_ms: int | None = None
    filled_by: Literal["topic", "batch"] = "topic"
    added_columns: tuple[str, ...] = ()
    gone_columns: tuple[str, ...] = ()
    table_columns: tuple[str, ...] = ()
    applied: bool = False


class Move(Message):
    """The new owner reads the partition again from `read_from`; `log_end` is where it ends now.

    Attributes:
        load_percent: the partition's part of the load of all cubes; None in a plan that is not by load.
    """

    partition: int
    source: str
    target: str
    read_from: int
    log_end: int
    load_percent: float | None = None


class SetLoad(Message):
    """The load of a replica set.

    Attributes:
        partitions: number of partitions of the cube that moves.
        load_percent: part of the load of all cubes.
        records_per_s: records that arrive, of all cubes. None where no receiver says so.
        lag_records: records that arrived and are not read, of all cubes.
        held_bytes: local data of one of its receivers, of all cubes. None where no receiver says so.
    """

    replica_set: str
    partitions: int
    load_percent: float
    records_per_s: float | None = None
    lag_records: int = 0
    held_bytes: int | None = None


class LoadPlan(Message):
    """The loads before and after a plan by load, by replica set.

    Attributes:
        pays_percent: what a move has to bring at least, as part of the load of all cubes.
        unreported: partitions of the cube whose load is not reported; they count as the mean of the others.
    """

    before: tuple[SetLoad, ...]
    after: tuple[SetLoad, ...]
    pays_percent: float
    unreported: tuple[int, ...] = ()


class Reassignment(Message):
    """`epoch` is of the assignment that stands now: `after` if `applied`, otherwise `before`.

    Attributes:
        planned_epoch: of the assignment for which the new owners warm up now; None where none do.
        load: the loads before and after; None for a plan that is not by load.
    """

    cube: str
    epoch: int
    before: dict[str, tuple[int, ...]]
    after: dict[str, tuple[int, ...]]
    moves: tuple[Move, ...] = ()
    applied: bool = False
    planned_epoch: int | None = None
    load: LoadPlan | None = None


class DrainRequest(Message):
    """Move all partitions off a replica set, with warm-up. The leader goes on until it has none.

    Attributes:
        undo: let it be given partitions again instead; moves that are planned for the drain are cancelled.
        dry_run: answer the moves of all cubes, change nothing.
        cubes_max: at most so many cubes move at the same time; a repetition changes it.
    """

    undo: bool = False
    dry_run: bool = False
    cubes_max: int = Field(default=1, ge=1)


class DrainedCube(Message):
    """A cube that has partitions in a replica set that is drained, or gets some by a move that runs.

    Attributes:
        partitions: those that it has there now.
        moves: those that this call has planned.
        planned_epoch: of the move that runs; None where none does.
        waits: what the move waits for, or why it has not begun yet.
        refused: what keeps it from being moved until somebody does something about it; "" for nothing.
    """

    cube: str
    partitions: tuple[int, ...] = ()
    moves: tuple[Move, ...] = ()
    planned_epoch: int | None = None
    waits: tuple[str, ...] = ()
    refused: str = ""


class Drain(Message):
    """Progress of a drain: it is over when it is `draining` and has no `cubes`."""

    replica_set: str
    draining: bool
    cubes_max: int = 1
    cubes: tuple[DrainedCube, ...] = ()


class PurgeRequest(Message):
    """Segments that end at or below `before_ms` are dropped for ever."""

    before_ms: int


class PurgeResult(Message):
    """Segments that were dropped for ever.

    Attributes:
        dropped: the older revision that a run of the retention has dropped wholly, because all of it was
            purged before; "" for none.
    """

    horizon_ms: int | None
    segments: tuple[str, ...] = ()
    dropped: str = ""


class CleanupResult(Message):
    """Folders deleted from the object store, and records of purged segments removed.

    `waiting` says in words which folders stay for publications, and until when.
    """

    folders: tuple[str, ...] = ()
    records: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


class ClusterInfo(Message):
    leader_url: str
    coordinators: tuple[str, ...]
    receivers: tuple[ReceiverInfo, ...]
    replica_sets: tuple[ReplicaSetInfo, ...]
    cubes: tuple[CubeStatus, ...]
    applications: tuple[ApplicationOwner, ...] = ()
