"""Plain values that the administration of a Kafka cluster takes and returns.

Brokers are named by their ids, log directories by broker and path, replicas by partition and broker.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import NamedTuple

from rtolap.base.errors import RtolapError

NO_BROKER = -1

MIN_IN_SYNC = "min.insync.replicas"
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
CORDONED_LOG_DIRS = "cordoned.log.dirs"  # of a broker: paths, or * for all; since Kafka 4.3
LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
REMOTE_STORAGE_SYSTEM = "remote.log.storage.system.enable"  # of a broker, since its start
REMOTE_STORAGE = "remote.storage.enable"  # of a topic, as are those that follow
REMOTE_COPY_DISABLED = "remote.log.copy.disable"
LOCAL_RETENTION_MS, LOCAL_RETENTION_BYTES = "local.retention.ms", "local.retention.bytes"
RETENTION_MS, RETENTION_BYTES = "retention.ms", "retention.bytes"
SEGMENT_BYTES = "segment.bytes"


class Partition(NamedTuple):
    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.number}"


class Replica(NamedTuple):
    partition: Partition
    broker: int


class OffsetSpec(IntEnum):
    """The kinds of offsets of a partition, by the timestamps that stand for them in ListOffsets.

    LATEST: the next record's. EARLIEST: of the first record, wherever it lies. EARLIEST_LOCAL: of the first
    on the leader's disk. LATEST_TIERED: of the last record in remote storage.
    """

    LATEST = -1
    EARLIEST = -2
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


NO_OFFSET = -1


@dataclass(frozen=True)
class BrokerDescription:
    """A broker as the cluster describes it. A `fenced` one is registered and serves nobody."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    fenced: bool = False


@dataclass(frozen=True)
class ClusterDescription:
    """A cluster as it describes itself. `controller` is the node that leads the metadata quorum, which need
    not be a broker; `NO_BROKER` where it is unknown."""

    cluster_id: str
    controller: int
    brokers: tuple[BrokerDescription, ...]

    @property
    def serving(self) -> dict[int, BrokerDescription]:
        """The brokers that serve, by id."""
        return {broker.broker_id: broker for broker in self.brokers if not broker.fenced}


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition as its leader describes it.

    Attributes:
        number: within the topic.
        leader: a broker, or `NO_BROKER` where nobody leads.
        replicas: brokers in the order of preference.
        in_sync: brokers that are in sync.
    """

    number: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True)
class TopicDescription:
    """A topic as the cluster describes it, with its `partitions` by number."""

    name: str
    internal: bool
    partitions: tuple[PartitionDescription, ...]


class HostedReplica(NamedTuple):
    """A replica in a log directory.

    Attributes:
        partition: what it is a replica of.
        size_bytes: on the disk.
        lag: records behind.
        future: whether it is being copied there from another directory of the same broker.
    """

    partition: Partition
    size_bytes: int
    lag: int
    future: bool


@dataclass(frozen=True)
class LogDirDescription:
    """total_bytes, usable_bytes: of the disk below, None where the broker does not say."""

    path: str
    total_bytes: int | None
    usable_bytes: int | None
    offline: bool
    cordoned: bool
    replicas: tuple[HostedReplica, ...]


@dataclass(frozen=True)
class BrokerLogDirs:
    """The answer of one broker about its log directories; missing: why it said nothing."""

    broker_id: int
    log_dirs: tuple[LogDirDescription, ...] = ()
    missing: RtolapError | None = None


@dataclass(frozen=True)
class RunningReassignment:
    """A reassignment that runs. `replicas` are all of the partition now, also those to be removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> frozenset[int]:
        return frozenset(self.replicas) - frozenset(self.removing)


class Right(StrEnum):
    """An operation that ACLs allow, on the cluster or on topics."""

    ALTER = "Alter"
    DESCRIBE = "Describe"
    ALTER_CONFIGS = "AlterConfigs"
    DESCRIBE_CONFIGS = "DescribeConfigs"


class ConfigKind(StrEnum):
    TOPIC = "topic"
    BROKER = "broker"


class ConfigResource(NamedTuple):
    """name: of the topic; of a broker its id, or "" for all brokers that have no value of their own."""

    kind: ConfigKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.name else "all brokers"


ALL_BROKERS = ConfigResource(ConfigKind.BROKER, "")


@dataclass(frozen=True)
class ClientQuota:
    """A quota. `entity` has types (user, client-id, ip) and names, sorted by type; a name None is the type's
    default."""

    entity: tuple[tuple[str, str | None], ...]
    values: dict[str, float] = field(default_factory=dict)
