"""Who uses topics: what brokers tell of groups and producers, and the seam by which they are asked.

Implementations: `usage_client.KafkaUsage`, `memory_usage.MemoryUsage`; each is a part of its administration.
Nothing is changed, and nobody is asked but brokers: a consumer that assigns partitions to itself and commits
nothing, and a producer that is not idempotent, leave no trace there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from rtolap.base.errors import RtolapError
from rtolap.kafka.administration.values import Partition

CONSUMER_GROUP, SHARE_GROUP, STREAMS_GROUP = "consumer", "share", "streams"
NO_TRANSACTION = -1


@dataclass(frozen=True)
class ListedGroup:
    """kind: in Kafka's words, classic, consumer (of the protocol since Kafka 4), share or streams; "" where
    an old broker does not say. state: Kafka's too. coordinator: the broker that keeps the group."""

    group: str
    kind: str
    state: str
    coordinator: int

    @property
    def may_have_members(self) -> bool:
        return self.state not in ("Empty", "Dead")


@dataclass(frozen=True)
class ListedGroups:
    """missing: why there may be others, by broker that did not answer, and for want of a right."""

    groups: tuple[ListedGroup, ...]
    missing: tuple[RtolapError, ...] = ()


@dataclass(frozen=True)
class GroupMember:
    """assigned: the partitions that it reads now."""

    client_id: str
    host: str
    assigned: tuple[Partition, ...]


@dataclass(frozen=True)
class ActiveProducer:
    """An idempotent producer that a partition remembers. last_written_ms: the time of its last batch.
    transaction_start: the first offset of a transaction that is open, or `NO_TRANSACTION`."""

    producer_id: int
    last_written_ms: int
    transaction_start: int = NO_TRANSACTION


class UsageAdministration(Protocol):
    def list_groups(self, brokers: Collection[int]) -> ListedGroups:
        """List the groups that these brokers keep. Needs Describe on the cluster; without it those groups
        alone that may be described are told, and `missing` says that there may be others."""
        ...

    def describe_groups(
        self, groups: Collection[ListedGroup]
    ) -> dict[str, tuple[GroupMember, ...] | RtolapError]:
        """Tell the members of groups, asked of their coordinators in bulk. A group that is gone has none.
        Needs Describe on the groups. Refused for streams groups."""
        ...

    def committed_offsets(
        self, groups: Collection[ListedGroup]
    ) -> dict[str, dict[Partition, int] | RtolapError]:
        """Tell the next offset of each partition that a group has committed, of a share group where its
        records in flight start. Needs Describe on the groups, and on the topics: others do not show."""
        ...

    def active_producers(
        self, leaders: Mapping[Partition, int]
    ) -> dict[Partition, tuple[ActiveProducer, ...] | RtolapError]:
        """Tell the producers of partitions, asked of the brokers that lead them, which forget those that were
        silent for `producer.id.expiration.ms`, a day. Needs Read on the topics."""
        ...
