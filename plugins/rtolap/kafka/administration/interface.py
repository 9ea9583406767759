"""The seam to the administration of a Kafka cluster. Implementations: `client.KafkaAdministration`,
`memory.MemoryAdministration`.

Every call is one exchange with brokers: it starts what it names and waits for no end. All of it may be sent
again: a repetition changes nothing. A failure of single partitions, brokers or resources is answered for
each; a failure of all is raised:

    Forbidden      names the right that is missing
    Unauthorized   the credentials are wrong
    Unavailable    no broker answers, or none that can: retry
    Refused        the brokers do not know the request, or take no such thing

Who uses topics is told by what brokers know of groups and producers. Nothing is changed by asking, and nobody
is asked but brokers: a consumer that assigns partitions to itself and commits nothing, and a producer that is
not idempotent, leave no trace there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rtolap.base.errors import RtolapError
from rtolap.kafka.administration.values import (
    BrokerLogDirs,
    ClientQuota,
    ClusterDescription,
    ConfigResource,
    OffsetSpec,
    Partition,
    Replica,
    Right,
    RunningReassignment,
    TopicDescription,
)

CONSUMER_GROUP, SHARE_GROUP, STREAMS_GROUP = "consumer", "share", "streams"
NO_TRANSACTION = -1

Outcomes = dict[Partition, RtolapError]
"""The refusals by partition; partitions that are not in it were accepted."""


@dataclass(frozen=True)
class ListedGroup:
    """A group as its coordinator lists it.

    Attributes:
        group: its name.
        kind: in Kafka's words, classic, consumer (of the newer protocol), share or streams; "" where an old
            broker does not say.
        state: in Kafka's words.
        coordinator: the broker that keeps the group.
    """

    group: str
    kind: str
    state: str
    coordinator: int

    @property
    def may_have_members(self) -> bool:
        return self.state not in ("Empty", "Dead")


@dataclass(frozen=True)
class ListedGroups:
    """Groups that a cluster lists. `missing` says why there may be others: by broker that did not answer, and
    for want of a right."""

    groups: tuple[ListedGroup, ...]
    missing: tuple[RtolapError, ...] = ()


@dataclass(frozen=True)
class GroupMember:
    """A member of a group. `assigned` has the partitions that it reads now."""

    client_id: str
    host: str
    assigned: tuple[Partition, ...]


@dataclass(frozen=True)
class ActiveProducer:
    """An idempotent producer that a partition remembers.

    Attributes:
        producer_id: given by Kafka.
        last_written_ms: the time of its last batch.
        transaction_start: the first offset of a transaction that is open, or `NO_TRANSACTION`.
    """

    producer_id: int
    last_written_ms: int
    transaction_start: int = NO_TRANSACTION


class UsageAdministration(Protocol):
    def list_groups(self, brokers: Collection[int]) -> ListedGroups:
        """List the groups that these brokers keep. It needs Describe on the cluster; without it only groups
        that may be described are listed, and `missing` says that there may be others."""

    def describe_groups(
        self, groups: Collection[ListedGroup]
    ) -> dict[str, tuple[GroupMember, ...] | RtolapError]:
        """Tell the members of groups, asked of their coordinators in bulk. A group that is gone has none.
        Needs Describe on the groups. Raises Refused for streams groups."""

    def committed_offsets(
        self, groups: Collection[ListedGroup]
    ) -> dict[str, dict[Partition, int] | RtolapError]:
        """Tell the next offset of each partition that a group has committed, of a share group where its
        records in flight start. It needs Describe on the groups, and on the topics: others do not show."""

    def active_producers(
        self, leaders: Mapping[Partition, int]
    ) -> dict[Partition, tuple[ActiveProducer, ...] | RtolapError]:
        """Tell the producers of partitions, asked of the brokers that lead them, which forget those that were
        silent for `producer.id.expiration.ms`, a day. It needs Read on the topics."""


class FleetAdministration(UsageAdministration, Protocol):
    """Calls are thread-safe."""

    def describe_cluster(self) -> ClusterDescription:
        """Return brokers by id, fenced ones too."""

    def describe_topics(self, topics: Collection[str] | None = None) -> dict[str, TopicDescription]:
        """Describe all topics, or those named that exist. It needs Describe on a topic: others do not
        show."""

    def describe_log_dirs(
        self, brokers: Collection[int], partitions: Collection[Partition] | None = None
    ) -> dict[int, BrokerLogDirs]:
        """Describe the named brokers, one that says nothing with the reason. It needs Describe on the
        cluster.

        `partitions`: only their replicas. A directory is told of even where it holds none of them.
        """

    def list_offsets(
        self, leaders: Mapping[Partition, int], spec: OffsetSpec
    ) -> dict[Partition, int | RtolapError]:
        """Return the offset of each partition, asked of the broker that is named with it; `NO_OFFSET` where
        there is none of the kind. Unavailable where another broker leads by now. It needs Describe on the
        topics.
        """

    def reassign(self, targets: Mapping[Partition, Sequence[int] | None]) -> Outcomes:
        """Begin to move partitions to the brokers named, in the order of preference; None cancels what runs.

        A cancelled partition has its former brokers again, not in their former order. To cancel where nothing
        runs is no error. It needs Alter on the cluster.
        """

    def running_reassignments(
        self, partitions: Collection[Partition] | None = None
    ) -> dict[Partition, RunningReassignment]:
        """Return the reassignments that run. It needs Describe on the cluster."""

    def move_log_dirs(self, paths: Mapping[Replica, str]) -> dict[Replica, RtolapError]:
        """Begin to move replicas to other directories of their own brokers; the present one cancels what
        runs. Returns the refusals, by replica: NotFound where the broker has no such replica yet, or where
        there is no such directory. It needs Alter on the cluster.
        """

    def configs(
        self, resources: Collection[ConfigResource], names: Collection[str], *, inherited: bool = False
    ) -> dict[ConfigResource, dict[str, str]]:
        """Return values that were set on the resource itself, of the names asked for; with `inherited` those
        too that hold where none was set. A resource that is not there does not show. It needs DescribeConfigs
        on the topics or the cluster.
        """

    def alter_configs(
        self, changes: Mapping[ConfigResource, Mapping[str, str | None]]
    ) -> dict[ConfigResource, RtolapError]:
        """Set values, or remove those that are None, all in one batch; others stay. Returns the refusals, by
        resource: NotFound for topics that are not there. It needs AlterConfigs on the topics or the cluster.
        """

    def elect_preferred_leaders(self, partitions: Collection[Partition]) -> Outcomes:
        """Let the first replica lead, where it is in sync and does not yet. It needs Alter on the cluster."""

    def client_quotas(self) -> tuple[ClientQuota, ...]:
        """Return all quotas, by entity. It needs DescribeConfigs on the cluster."""

    def alter_client_quotas(
        self, changes: Mapping[tuple[tuple[str, str | None], ...], Mapping[str, float | None]]
    ) -> None:
        """Set quotas of entities, or remove those that are None. It needs AlterConfigs on the cluster."""

    def unregister_broker(self, broker: int) -> None:
        """Forget a broker that is gone: it is no longer described, and may join again. To forget one that is
        not registered is no error. Brokers do not ask whether it is gone. It needs Alter on the cluster."""

    def missing_rights(
        self, on_cluster: Collection[Right], on_topics: Collection[Right] = (), topics: Collection[str] = ()
    ) -> tuple[str, ...]:
        """Tell which of these rights this principal has not, as in "Alter on the cluster"; of topics that are
        not there, or may not be described, it has none. Nothing is missing where brokers do not tell."""

    def close(self) -> None: ...
