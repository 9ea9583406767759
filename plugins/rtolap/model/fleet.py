"""A fleet of Kafka clusters: whose topics stand where, and what each cluster keeps apart.

Clusters are isolated by business (whose topics they take), by role (controllers in processes of their own)
and by priority (brokers, or a whole cluster, with more to spare). Patterns of topics are those of a shell:
`*` stands for any characters, `?` for one; the first of a list that matches decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import translate
from typing import Literal

import msgspec

from rtolap.base.errors import NotFound
from rtolap.model.problems import did_you_mean

QUOTA_KEYS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
DEFAULT_ENTITY = "<default>"  # as Kafka's own tools write the default user, client id or address

Priority = Literal["vip", "standard", "batch"]


class TopicOwner(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Topics of `match` belong to `business`, in clusters of `priority`; None: of any."""

    match: tuple[str, ...]
    business: str
    priority: Priority | None = None


class BrokerRange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A range of broker ids. Both ends belong to it."""

    first: int
    last: int


class BrokerPool(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Brokers by id.

    Attributes:
        exclusive: True where only topics that a placement rule sends here have replicas here.
    """

    brokers: tuple[int, ...] = ()
    ranges: tuple[BrokerRange, ...] = ()
    exclusive: bool = True

    @property
    def ids(self) -> frozenset[int]:
        ranged = (broker for each in self.ranges for broker in range(each.first, each.last + 1))
        return frozenset((*self.brokers, *ranged))


class PlacementRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The placement of replicas of topics of `match`. None follows the cluster's own value.

    Attributes:
        pools: pools whose brokers may hold the replicas.
        brokers: further brokers that may hold them; without either, all brokers where any topic may be.
    """

    match: tuple[str, ...]
    pools: tuple[str, ...] = ()
    brokers: tuple[int, ...] = ()
    replication_factor: int | None = None
    min_in_sync: int | None = None
    racks: Literal["spread", "ignore"] | None = None


class CapacityReserve(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Capacity that stays free.

    Attributes:
        disk_percent: share of each disk that stays free.
        brokers: number of brokers, the fullest ones, that may be lost: the pool's others then hold their
            replicas without using that share.
    """

    disk_percent: float = 15.0
    brokers: int = 0


class BrokerPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The policy for brokers that are not well.

    `propose` proposes to a person to cordon and drain them, `apply` does so, `ignore` does nothing.

    Attributes:
        slow_for_ms: time after which a slow broker counts.
        out_of_service_max: with so many brokers cordoned, drained, under repair or away, nothing more is
            done.
    """

    failed_disk: Literal["propose", "apply", "ignore"] = "propose"
    slow_broker: Literal["propose", "apply", "ignore"] = "propose"
    slow_for_ms: int = 600_000
    out_of_service_max: int = 1


class DeclaredQuota(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Rates of one entity, which a `user`, a `client_id`, both, or an `ip` name; `<default>` is the default
    of its type. Bytes and mutations are per second and broker, as Kafka counts them."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None
    producer_byte_rate: float | None = None
    consumer_byte_rate: float | None = None
    request_percentage: float | None = None
    controller_mutation_rate: float | None = None
    connection_creation_rate: float | None = None

    @property
    def entity(self) -> tuple[tuple[str, str | None], ...]:
        """Return types and names, sorted by type; None is the default of its type."""
        named = (("client-id", self.client_id), ("ip", self.ip), ("user", self.user))
        return tuple((kind, None if name == DEFAULT_ENTITY else name) for kind, name in named if name)

    @property
    def rates(self) -> dict[str, float]:
        return {key: value for key in QUOTA_KEYS if (value := getattr(self, key)) is not None}


class FleetCluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A Kafka cluster of a fleet.

    Attributes:
        businesses: the businesses whose topics the cluster takes.
        kafka_cluster: the name by which this host reaches the cluster; by default its own name.
        cluster_id: Kafka's id, which tells another cluster's snapshot apart.
        roles: whether a process may be broker and controller.
        controllers: the controllers' nodes, where they are separate.
        replication_factor: for topics whose rule does not state it.
        min_in_sync: for topics whose rule does not state it.
        racks: for topics whose rule does not state it. `spread`: no two replicas of a partition share a rack,
            as far as there are racks.
        undeclared_quotas: whether quotas that nobody declared are removed, or only named.
    """

    businesses: tuple[str, ...]
    priority: Priority = "standard"
    kafka_cluster: str | None = None
    cluster_id: str | None = None
    roles: Literal["separate", "combined"] = "separate"
    controllers: tuple[int, ...] = ()
    replication_factor: int = 3
    min_in_sync: int = 2
    racks: Literal["spread", "ignore"] = "spread"
    pools: dict[str, BrokerPool] = {}
    placement: tuple[PlacementRule, ...] = ()
    reserve: CapacityReserve = CapacityReserve()
    policy: BrokerPolicy = BrokerPolicy()
    quotas: tuple[DeclaredQuota, ...] = ()
    undeclared_quotas: Literal["report", "remove"] = "report"

    def takes(self, owner: TopicOwner) -> bool:
        """Return whether topics of this owner belong in the cluster."""
        return owner.business in self.businesses and owner.priority in (None, self.priority)


class KafkaFleet(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Kafka clusters, and who owns which topics.

    Attributes:
        clusters: by name.
        topics: the owners of topics; the first that matches decides.
    """

    name: str
    clusters: dict[str, FleetCluster]
    topics: tuple[TopicOwner, ...] = ()

    def cluster(self, name: str) -> FleetCluster:
        try:
            return self.clusters[name]
        except KeyError:
            raise NotFound(
                f"fleet {self.name} has no cluster {name}",
                expected=", ".join(sorted(self.clusters)),
                action=did_you_mean(name, self.clusters) or None,
            ) from None

    def declared_name(self, name: str) -> str:
        """Return the name of a cluster of the fleet that is named so, or that this host reaches so. Raises
        NotFound, also where it reaches several so."""
        reached = [own for own in self.clusters if self.kafka_cluster(own) == name]
        if name not in self.clusters and len(reached) == 1:
            return reached[0]
        self.cluster(name)
        return name

    def kafka_cluster(self, name: str) -> str:
        """Return the name by which this host reaches a cluster of the fleet."""
        return self.cluster(name).kafka_cluster or name


def first_matches(topics: Iterable[str], patterns: Sequence[tuple[str, ...]]) -> list[int | None]:
    """Return for each topic the place of the first group of patterns that matches it."""
    compiled = [re.compile("|".join(map(translate, alternatives))) for alternatives in patterns]
    return [
        next((place for place, pattern in enumerate(compiled) if pattern.match(topic)), None)
        for topic in topics
    ]
