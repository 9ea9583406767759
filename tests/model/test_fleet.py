"""The registry of Kafka fleets: read from YAML, and refused with the place of what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from rtolap.base.errors import DefinitionError, NotFound
from rtolap.model.fleet import (
    BrokerPolicy,
    BrokerPool,
    BrokerRange,
    CapacityReserve,
    DeclaredQuota,
    FleetCluster,
    KafkaFleet,
    PlacementRule,
    TopicOwner,
    first_matches,
)
from rtolap.model.problems import raise_all
from rtolap.model.validation.fleet import fleet_problems
from rtolap.model.yaml_files import read_definitions

from tests.support.paths import PROJECT

FULL = """kind: kafka_fleet
name: production
topics:
  - {match: ["orders.vip.*"], business: orders, priority: vip}
  - {match: ["orders.*"], business: orders}
clusters:
  orders:
    businesses: [orders]
    priority: vip
    kafka_cluster: orders-eu
    cluster_id: Mk
    roles: separate
    controllers: [100]
    replication_factor: 4
    min_in_sync: 3
    racks: ignore
    pools:
      vip: {brokers: [1, 2], ranges: [{first: 5, last: 9}], exclusive: false}
    placement:
      - {match: ["orders.vip.*"], pools: [vip], brokers: [30], racks: spread,
         replication_factor: 3, min_in_sync: 2}
    reserve: {disk_percent: 30, brokers: 1}
    policy: {failed_disk: apply, slow_broker: ignore, slow_for: 5m, out_of_service_max: 2}
    quotas:
      - {user: <default>, client_id: etl, consumer_byte_rate: 5}
    undeclared_quotas: remove
"""


def read(tmp_path: Path, text: str) -> KafkaFleet:
    file = tmp_path / "clusters.yaml"
    file.write_text(text)
    return read_definitions(file).fleets["production"]


def test_every_key_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, FULL) == KafkaFleet(
        name="production",
        topics=(
            TopicOwner(("orders.vip.*",), "orders", "vip"),
            TopicOwner(("orders.*",), "orders"),
        ),
        clusters={
            "orders": FleetCluster(
                businesses=("orders",),
                priority="vip",
                kafka_cluster="orders-eu",
                cluster_id="Mk",
                controllers=(100,),
                replication_factor=4,
                min_in_sync=3,
                racks="ignore",
                pools={"vip": BrokerPool((1, 2), (BrokerRange(5, 9),), exclusive=False)},
                placement=(PlacementRule(("orders.vip.*",), ("vip",), (30,), 3, 2, "spread"),),
                reserve=CapacityReserve(30, 1),
                policy=BrokerPolicy("apply", "ignore", 300_000, 2),
                quotas=(DeclaredQuota("<default>", "etl", consumer_byte_rate=5.0),),
                undeclared_quotas="remove",
            )
        },
    )


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("name: production", "name: Production", "2: name: not a name"),
        ("business: orders}", "business: order}", "5: topics[1].business: no cluster takes its topics"),
        ("priority: vip}", "priority: batch}", "4: topics[0].priority: no cluster of orders has this"),
        ('["orders.vip.*"], b', '["*"], b', "5: topics[1].match[0]: never decides"),
        ('["orders.vip.*"], b', '["[a-z]"], b', "4: topics[0].match[0]: not a pattern of topics"),
        ('["orders.vip.*"], b', "[], b", "4: topics[0].match: matches no topic"),
        ("businesses: [orders]", "businesses: [orders, ordesr]", "8: clusters.orders.businesses[1]: no"),
        ("businesses: [orders]", "businesses: []", "8: clusters.orders.businesses: nobody's cluster"),
        ("orders-eu", "eu:9092", "10: clusters.orders.kafka_cluster: not a cluster's name"),
        (
            "controllers: [100]",
            "controllers: [7]",
            "13: clusters.orders.controllers[0]: a broker of pool vip",
        ),
        ("controllers: [100]", "controllers: [-1]", "13: clusters.orders.controllers[0]: no node's id"),
        ("min_in_sync: 3\n", "min_in_sync: 4\n", "15: clusters.orders.min_in_sync: nobody could write while"),
        ("factor: 4", "factor: 0", "14: clusters.orders.replication_factor: out of bounds"),
        ("first: 5", "first: 15", "18: clusters.orders.pools.vip.ranges[0]: no range"),
        ("[1, 2]", "[1, 1]", "18: clusters.orders.pools.vip.brokers: named twice"),
        ("pools: [vip]", "pools: [vpi]", "20: clusters.orders.placement[0].pools[0]: no such pool"),
        ("r: 3, min_in_sync: 2", "r: 9, min_in_sync: 2", "21: clusters.orders.placement[0].replication_fac"),
        ("percent: 30", "percent: 99", "22: clusters.orders.reserve.disk_percent: out of bounds"),
        ("service_max: 2", "service_max: -1", "23: clusters.orders.policy.out_of_service_max: out of bounds"),
        ("user: <default>, client_id: etl", "ip: 10.0.0.1", "25: clusters.orders.quotas[0].consumer_byte"),
        ("rate: 5}", "rate: 0}", "25: clusters.orders.quotas[0].consumer_byte_rate: out of bounds"),
        (", consumer_byte_rate: 5", "", "25: clusters.orders.quotas[0]: a quota without a rate"),
        ("user: <default>, client_id: etl, ", "", "25: clusters.orders.quotas[0]: a quota of nobody"),
        ("undeclared_quotas: remove", "undeclared_quotas: drop", "26: clusters.orders.undeclared_quotas"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    assert old in FULL
    with pytest.raises(DefinitionError) as caught:
        read(tmp_path, FULL.replace(old, new, 1))
    assert f"clusters.yaml:{complaint}" in str(caught.value)


def _fleet(**clusters: FleetCluster) -> KafkaFleet:
    return KafkaFleet("f", clusters, (TopicOwner(("*",), "shop"),))


def _check(fleet: KafkaFleet) -> None:
    raise_all("fleet", fleet_problems(fleet))


def test_two_clusters_of_a_fleet_are_not_one_kafka_cluster() -> None:
    one = FleetCluster(businesses=("shop",), cluster_id="Mk")
    other = FleetCluster(businesses=("shop",), cluster_id="Mk", kafka_cluster="one")
    with pytest.raises(DefinitionError) as caught:
        _check(_fleet(one=one, other=other))
    assert "clusters.other.kafka_cluster: it is that of one too" in str(caught.value)
    assert "clusters.other.cluster_id: it is that of one too" in str(caught.value)


def test_an_exclusive_pool_shares_no_broker() -> None:
    pools = {"a": BrokerPool((1, 2, 3), exclusive=False), "b": BrokerPool((3, 4))}
    with pytest.raises(DefinitionError, match="shares brokers with a, and b is exclusive"):
        _check(_fleet(one=FleetCluster(businesses=("shop",), pools=pools)))
    shared = {name: BrokerPool(pool.brokers, exclusive=False) for name, pool in pools.items()}
    _check(_fleet(one=FleetCluster(businesses=("shop",), pools=shared)))


def test_the_first_pattern_that_matches_decides() -> None:
    topics = ["orders.vip.paid", "orders.paid", "ordersXpaid", "other"]
    patterns = [("orders.vip.*", "absent"), ("orders.*",), ("order?X*",)]
    assert first_matches(topics, patterns) == [0, 1, 2, None]


def test_an_unknown_cluster_is_told_with_the_nearest() -> None:
    with pytest.raises(NotFound, match="did you mean 'orders'"):
        _fleet(orders=FleetCluster(businesses=("shop",))).cluster("order")


def test_the_shipped_registry_is_sound() -> None:
    assert list(read_definitions(PROJECT / "include" / "fleet").fleets) == ["production"]
