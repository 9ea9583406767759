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


class TopicOwner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Topics of `match` belong to `business`, in clusters of `priority`; None: of any."""

    match: tuple[str, ...]
    business: str
    priority: Priority | None = None


class BrokerRange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Both ends belong to it."""

    first: int
    last: int


class BrokerPool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Brokers by id. `exclusive`: topics that no placement rule sends here have no replica here."""

    brokers: tuple[int, ...] = ()
    ranges: tuple[BrokerRange, ...] = ()
    exclusive: bool = True

    @property
    def ids(self) -> frozenset[int]:
        ranged = (broker for each in self.ranges for broker in range(each.first, each.last + 1))
        return frozenset((*self.brokers, *ranged))


class PlacementRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Replicas of topics of `match` stand on `brokers` and those of `pools`; without either, where every
    topic may. What is None is as the cluster says."""

    match: tuple[str, ...]
    pools: tuple[str, ...] = ()
    brokers: tuple[int, ...] = ()
    replication_factor: int | None = None
    min_in_sync: int | None = None
    racks: Literal["spread", "ignore"] | None = None


class CapacityReserve(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`disk_percent`: of each disk that stays free. `brokers`: so many may be lost, the fullest of them, and
    the others of the pool hold what it holds, without touching that share."""

    disk_percent: float = 15.0
    brokers: int = 0


class BrokerPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The policy for brokers that are not well: `propose` to a person to cordon and drain them, `apply`
    it, or `ignore` them. A slow broker counts after `slow_for_ms`. `out_of_service_max`: with so many brokers
    cordoned, drained, under repair or away, nothing more is done."""

    failed_disk: Literal["propose", "apply", "ignore"] = "propose"
    slow_broker: Literal["propose", "apply", "ignore"] = "propose"
    slow_for_ms: int = 600_000
    out_of_service_max: int = 1


class DeclaredQuota(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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


class FleetCluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`businesses`: whose topics it takes. `kafka_cluster`: the name by which this host reaches it, by
    default its own; `cluster_id`: Kafka's, to tell another cluster's snapshot apart.

    `roles`: whether a process may be broker and controller; `controllers`: their nodes, where they are apart.
    `replication_factor`, `min_in_sync` and `racks` hold for topics whose rule does not say otherwise;
    `spread`: no two replicas of a partition share a rack, as far as there are racks.
    `undeclared_quotas`: whether quotas that nobody declared are removed, or only named.
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


class KafkaFleet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`clusters` by name. `topics`: who owns which; the first that matches decides."""

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
    """Return for each topic the place of the first patterns of which one matches."""
    compiled = [re.compile("|".join(map(translate, alternatives))) for alternatives in patterns]
    return [
        next((place for place, pattern in enumerate(compiled) if pattern.match(topic)), None)
        for topic in topics
    ]
