"""Coordinators, receivers and replica sets: heartbeats, and what people see of them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rtolap.protocols.coordinator.messages.segments import CompletenessInfo, PartitionRange
from rtolap.protocols.rest.messages import Message

ReceiverHealth = Literal["HEALTHY", "WARN", "UNREACHABLE", "DOWN"]


class Health(Message):
    """`leader_url` is None while nobody leads. Standbys are healthy too."""

    role: Literal["leader", "standby"]
    url: str
    leader_url: str | None = None
    zookeeper: bool = Field(description="is the session to ZooKeeper alive?")
    applications: int = Field(default=0, description="how many applications it runs")
    program: str = Field(default="", description="version of rtolap that it runs")


class PartitionReport(Message):
    """A partition, as a receiver reads it.

    Attributes:
        idle: at the log's end and silent for a while, so that it does not hold the watermark.
        hostless_events: without a usable host, of a cube that closes by hosts.
        filtered_records: left out by the table's condition since the receiver reads the partition.
        refused: reason → records that the receiver has refused since it reads the partition, and that are in
            no count.
        records_per_s: records that arrive in the partition's log, by its end over the last minute at most.
            None: not measured for ten seconds yet, or the receiver is of an older version.
        held_bytes: of the receiver's data, in memory and on disk, the share that is the partition's. None:
            the receiver is of an older version.
    """

    position: int
    log_end: int | None = None
    watermark_ms: int | None = None
    idle: bool = False
    hostless_events: int = 0
    filtered_records: int = 0
    refused: dict[str, int] = Field(default_factory=dict)
    records_per_s: float | None = None
    held_bytes: int | None = None


class LateEventInfo(Message):
    """Where an event is that came after its segment had closed."""

    partition: int
    offset: int
    event_ms: int


class CubeReport(Message):
    """`assignment_epoch` is the epoch of the assignment that the receiver follows. `active` names the
    segments that have local events and no record yet: people see them, and no batch replaces them.

    Attributes:
        state: CONSUMING | PAUSED | REPLAYING | STOPPED | FAILED, as the receiver's own stats say.
        more_active: it has local events of more segments, between the last two that `active` names: the
            newest one is the last.
        refused_example: reason → what was wrong with the newest record that was refused for it.
        lost: offsets that it has to read and Kafka no longer holds; it is FAILED until they are accepted as
            lost.
        held_since_ms: since when something keeps it from reading all that arrives, `reason` says what; None:
            nothing does.
        behind: partition → offset that answers promised before and its position has not reached.
        late: the last ones of the late events that the receiver's process has read, at most ten.
        freshness_ms: the longest time that a record of the last minute took from its creation until answers
            had it. None: none with a timestamp was read, or the receiver is of an older version.
        zone_rules: checksum of the rules that its machine has of the table's time zone; "" for UTC, and of an
            older version.
    """

    state: str
    reason: str = ""
    assignment_epoch: int = 0
    partitions: dict[int, PartitionReport] = Field(default_factory=dict)
    active: tuple[str, ...] = ()
    more_active: bool = False
    refused_example: dict[str, str] = Field(default_factory=dict)
    lost: tuple[PartitionRange, ...] = ()
    held_since_ms: int | None = None
    behind: dict[int, int] = Field(default_factory=dict)
    late: tuple[LateEventInfo, ...] = ()
    freshness_ms: int | None = None
    zone_rules: str = ""


class HeartbeatRequest(Message):
    """A heartbeat, which is sent every second.

    Attributes:
        is_leader: does it lead its replica set?
        warming: reports of cubes that it reads beside what it serves, for an assignment that a move prepares.
    """

    receiver_id: str
    replica_set: str
    is_leader: bool = False
    cubes: dict[str, CubeReport] = Field(default_factory=dict)
    warming: dict[str, CubeReport] = Field(default_factory=dict)


class HeartbeatResponse(Message):
    """`low_watermark_ms` by cube; a cube is missing while its watermark is unknown.

    Attributes:
        windows: of cubes with an application, the newest windows that it lets close, ascending.
    """

    low_watermark_ms: dict[str, int] = Field(default_factory=dict)
    windows: dict[str, tuple[CompletenessInfo, ...]] = Field(default_factory=dict)


class ReceiverInfo(Message):
    """`last_seen_ms` is None where this leader has had no heartbeat yet.

    Attributes:
        metrics_port: 0 without one.
        machine: name of the machine that it runs on; "" where it declares none.
        rack: what fails together with other machines; "" where none is declared.
        program: version of rtolap that it runs; "" where that is one that does not say so.
    """

    receiver_id: str
    host: str
    port: int
    replica_set: str
    health: ReceiverHealth
    reason: str = ""
    is_leader: bool = False
    last_seen_ms: int | None = None
    metrics_port: int = 0
    machine: str = ""
    rack: str = ""
    program: str = ""
    cubes: dict[str, CubeReport] = Field(default_factory=dict)


class ReplicaSetInfo(Message):
    """A replica set.

    Attributes:
        draining: it is given no partitions any more.
        missing_since_ms: time since which none of its receivers lives, as the leader has seen it; None: one
            lives.
        state: SERVING | MISSING | LOST | DRAINING | DRAINED (see docs/moves.md), at the leader's last look;
            "": it has not looked yet.
        problem: what is wrong with it, and what follows; None: nothing is.
        shared_places: receivers that one machine or rack takes together, in words.
    """

    name: str
    receivers: tuple[str, ...]
    leader: str | None = None
    draining: bool = False
    missing_since_ms: int | None = None
    state: str = ""
    problem: str | None = None
    shared_places: tuple[str, ...] = ()


class ReplicaSetRequest(Message):
    receivers: tuple[str, ...]


class MetricsTargets(Message):
    """An entry of Prometheus' HTTP service discovery: targets as `host:port`, and their labels."""

    targets: tuple[str, ...]
    labels: dict[str, str]
