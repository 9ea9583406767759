"""The answers of the routes of the Kafka fleet, as JSON. Times are milliseconds since the epoch."""

from __future__ import annotations

import msgspec


class Broker(msgspec.Struct, frozen=True, kw_only=True):
    """A broker of the cluster. state: SERVING, or FENCED for one that is registered and serves nobody."""

    broker: int
    host: str
    rack: str
    state: str
    error: str = ""


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """A log directory as its broker tells it. used: share of the disk, 0 to 1; None: not known."""

    broker: int
    path: str
    total_bytes: int | None
    used_bytes: int | None
    used: float | None
    offline: bool


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """A move that is under way.

    Attributes:
        left_s: at the present pace; None where nothing is copied or nothing gained.
        note: that it stalls, or does not gain on what is written; why it is cancelled.
    """

    partition: str
    state: str
    brokers: str
    size_bytes: int
    copied_bytes: int
    bytes_per_s: float
    left_s: int | None
    note: str


class PlanStage(msgspec.Struct, frozen=True, kw_only=True):
    stage: int
    moves: int
    ended: int
    moved_bytes: int
    total_bytes: int


class FleetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan that is carried out, or the last one.

    Attributes:
        counts: number of moves by state.
        expected_end_ms: at the present pace; None where it is not known, or what is known of it is old.
        warnings: what of this is old, who is away, and what keeps the plan from its end.
    """

    plan_id: str
    digest: str
    state: str
    by: str
    submitted_ms: int
    counts: dict[str, int]
    total_bytes: int
    moved_bytes: int
    left_bytes: int
    bytes_per_s: float
    throttle_bytes_per_s: int | None
    expected_end_ms: int | None
    stages: tuple[PlanStage, ...]
    moves: tuple[Move, ...]
    warnings: tuple[str, ...]


class StageTime(msgspec.Struct, frozen=True, kw_only=True):
    mean_ms: float | None
    p99_ms: float | None


class SlowBroker(msgspec.Struct, frozen=True, kw_only=True):
    """A broker at one kind of request, between the last two looks. Times are None where nothing is known.

    Attributes:
        stage: in which the slowest requests spend most time; None where that is not known.
        stages: the mean of those requests, and the 99th percentile, by stage.
        cause: what is behind it; empty where it is well, or nothing is known.
    """

    broker: int
    request: str
    state: str
    is_slow: bool
    since_ms: int
    requests: int | None
    p99_ms: float | None
    stage: str | None
    stages: dict[str, StageTime]
    cause: str


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster of Kafka.

    Attributes:
        clusters: those that this host's settings declare.
        error: why brokers and the plan are not known; empty if they are.
        slow_error: why slow brokers are not known; empty if they are.
        slow_missing: brokers' sources that have not answered, with the reason.
        slow_from_ms: begin of the time that `slow` is about; None before the second look.
    """

    now_ms: int
    cluster: str
    clusters: tuple[str, ...]
    brokers: tuple[Broker, ...]
    disks: tuple[Disk, ...]
    plan: FleetPlan | None
    slow: tuple[SlowBroker, ...]
    slow_from_ms: int | None
    slow_missing: tuple[str, ...]
    error: str = ""
    slow_error: str = ""


class PlannedDisk(msgspec.Struct, frozen=True, kw_only=True):
    """A disk in a plan. before, after: the share that is used, 0 to 1; None: not known."""

    broker: int
    path: str
    total_bytes: int | None
    before: float | None
    after: float | None


class PlannedDisks(msgspec.Struct, frozen=True, kw_only=True):
    """The used shares of disks before and after a plan. expected_s: None where it would never end."""

    digest: str
    kind: str
    why: tuple[str, ...]
    taken_at_ms: int
    partitions: int
    stages: int
    moved_bytes: int
    throttle_bytes_per_s: int
    expected_s: float | None
    disks: tuple[PlannedDisk, ...]
