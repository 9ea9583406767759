"""The answers of the page's routes, as JSON. Times are milliseconds since the epoch."""

from __future__ import annotations

import msgspec

from rtolap.airflow.page.tasks import TaskLink


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A fault that needs a person.

    Attributes:
        what: what is wrong, in words.
        action: what to do.
        severity: `error` where answers are missing or will be, else `warning`.
        cube, receiver: what the page can show about it; empty for none.
    """

    what: str
    action: str
    severity: str
    cube: str = ""
    receiver: str = ""


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """A process of the cluster.

    Attributes:
        state: `HEALTHY`, or the word of who watches it.
        seen_ms: when it was last heard of; None where nobody keeps that.
        task: that waits for it; None where no task of Airflow does.
    """

    role: str
    name: str
    state: str
    detail: str = ""
    seen_ms: int | None = None
    task: TaskLink | None = None


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster on one page.

    Attributes:
        records_per_s: arriving in the logs of all cubes; None while no receiver has a rate yet.
        lag_records: behind the ends of the logs, of the furthest owner of each partition.
        freshness_ms: the longest time that a record of the last minute took from its creation until answers
            had it, of all cubes; None where none was read.
        held_bytes: local data of all receivers.
        segments: number of segments by state, of all cubes.
        agent_error: why the agent's processes are missing; empty if they are not.
    """

    now_ms: int
    leader_url: str
    services: tuple[Service, ...]
    problems: tuple[Problem, ...]
    cubes: int
    cubes_enabled: int
    records_per_s: float | None
    lag_records: int
    freshness_ms: int | None
    held_bytes: int
    segments: dict[str, int]
    agent_error: str = ""


class CubeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A cube in the list of cubes. state: `on`, `paused` or `off`; freshness_ms: as in `Overview`."""

    name: str
    state: str
    low_watermark_ms: int | None
    lag_records: int
    records_per_s: float | None
    freshness_ms: int | None
    segments: dict[str, int]
    problems: int


class CubeList(msgspec.Struct, frozen=True):
    now_ms: int
    cubes: tuple[CubeRow, ...]


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """A partition of a cube's topic, as its owner reports it."""

    partition: int
    position: int
    log_end: int | None
    watermark_ms: int | None
    idle: bool
    receiver: str
    reported_ms: int


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    reason: str
    records: int
    example: str


class LateEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that came after its segment had closed."""

    partition: int
    offset: int
    event_ms: int
    segment: str
    receiver: str


class FailedBuild(msgspec.Struct, frozen=True, kw_only=True):
    """A segment whose last build has failed. A person may queue it again."""

    segment: str
    version: int
    error: str


class Switched(msgspec.Struct, frozen=True, kw_only=True):
    """Who has turned a switch of the cube last. to: `enable`, `disable`, `pause` or `resume`; by: empty where
    nobody gave a name."""

    to: str
    by: str
    reason: str
    at_ms: int


class Segments(msgspec.Struct, frozen=True, kw_only=True):
    """Segments by columns, in the order of their starts: entry i of each list is of segment i.

    Attributes:
        note: what a person should know of it: the error of a build, what it waits for, events that were lost.
    """

    segment: tuple[str, ...]
    start_ms: tuple[int, ...]
    end_ms: tuple[int, ...]
    state: tuple[str, ...]
    version: tuple[int, ...]
    parts: tuple[int, ...]
    events: tuple[int | None, ...]
    late_events: tuple[int | None, ...]
    building: tuple[bool, ...]
    note: tuple[str, ...]


class CubePage(msgspec.Struct, frozen=True, kw_only=True):
    now_ms: int
    cube: CubeRow
    table: str
    topic_id: str
    horizon_ms: int | None
    window_ms: int
    partitions: tuple[Partition, ...]
    refused: tuple[Refused, ...]
    problems: tuple[Problem, ...]
    move_waits: tuple[str, ...]
    segments: Segments
    failed: tuple[FailedBuild, ...] = ()
    late: tuple[LateEvent, ...] = ()
    switched: Switched | None = None


class OwnedPartition(msgspec.Struct, frozen=True, kw_only=True):
    cube: str
    partition: int
    position: int
    log_end: int | None
    watermark_ms: int | None
    records_per_s: float | None
    held_bytes: int | None


class Receiver(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    replica_set: str
    address: str
    health: str
    reason: str
    leads: bool
    draining: bool
    seen_ms: int | None
    cubes: dict[str, str]
    partitions: tuple[OwnedPartition, ...]


class Moving(msgspec.Struct, frozen=True, kw_only=True):
    """A move of partitions that warms up. before, after: replica set → its partitions."""

    cube: str
    before: dict[str, tuple[int, ...]]
    after: dict[str, tuple[int, ...]]
    waits: tuple[str, ...]


class Receivers(msgspec.Struct, frozen=True, kw_only=True):
    now_ms: int
    receivers: tuple[Receiver, ...]
    moves: tuple[Moving, ...]


class Rights(msgspec.Struct, frozen=True):
    """Who is signed in, the DAGs that this person may start, whether they may ask statements, and the DAGs
    whose questions they may answer."""

    user: str
    may_start: tuple[str, ...]
    may_ask: bool = False
    may_answer: tuple[str, ...] = ()
