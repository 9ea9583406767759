"""The audit names what differs from the registry, and nothing else."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import numpy as np
import pytest
from rtolap.base.errors import Refused
from rtolap.fleet.isolation.audit import QUOTAS_FACT, audit
from rtolap.fleet.isolation.findings import Finding, FindingKind, Severity
from rtolap.fleet.isolation.placement import placement_rules
from rtolap.fleet.snapshot.model import UNKNOWN, FleetSnapshot, MissingFact, Quota
from rtolap.fleet.snapshot.rates import FORBIDDEN_WITHOUT_RATES
from rtolap.model.fleet import (
    BrokerPool,
    CapacityReserve,
    DeclaredQuota,
    FleetCluster,
    KafkaFleet,
    PlacementRule,
    TopicOwner,
)

from tests.support.fleet.hand_made import DISK_BYTES, hand_made

RACKS = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
SOUND = {"paid": [[1, 3, 5], [4, 6, 2]]}
K = FindingKind


def shop(**changes: Any) -> KafkaFleet:
    cluster = FleetCluster(**{"businesses": ("shop",), **changes})
    return KafkaFleet("f", {"one": cluster}, (TopicOwner(("*",), "shop"),))


def found(fleet: KafkaFleet, snapshot: FleetSnapshot) -> list[Finding]:
    return list(audit(fleet, {"one": snapshot}).findings)


def only(fleet: KafkaFleet, snapshot: FleetSnapshot) -> Finding:
    (finding,) = found(fleet, snapshot)
    return finding


def test_a_cluster_that_is_as_declared_has_no_findings() -> None:
    assert audit(shop(), {"one": hand_made(RACKS, SOUND, min_in_sync={"paid": 2})}).findings == ()


def test_replicas_that_share_a_rack_are_found_and_so_is_the_loss_of_it() -> None:
    snapshot = hand_made(RACKS, {"paid": [[1, 2, 3], [1, 3, 5]]}, min_in_sync={"paid": 2})
    lost, shared = found(shop(), snapshot)
    assert (shared.kind, shared.severity, shared.subject) == (K.SHARED_RACK, Severity.WARNING, "paid")
    assert (shared.partitions, shared.expected, shared.found) == (
        (0,),
        "replicas in 3 racks",
        "partition 0 in 2",
    )
    assert (lost.kind, lost.severity, lost.partitions) == (K.RACK_LOSS, Severity.CRITICAL, (0,))
    assert lost.found == "fewer without a"


def test_two_racks_are_enough_for_three_replicas_until_one_is_lost() -> None:
    racks = {broker: rack for broker, rack in RACKS.items() if rack != "c"}
    snapshot = hand_made(racks, {"paid": [[1, 2, 3]]}, min_in_sync={"paid": 2})
    assert [finding.kind for finding in found(shop(), snapshot)] == [K.RACK_LOSS]
    assert found(shop(racks="ignore"), snapshot) == []


def test_a_replica_that_leaves_does_not_spread_a_partition() -> None:
    topics = {"paid": [[1, 2, 3, 5]]}
    leaving = hand_made(RACKS, topics, min_in_sync={"paid": 2}, removing={("paid", 0, 5)})
    assert [finding.kind for finding in found(shop(), leaving)] == [K.SHARED_RACK]


def test_a_partition_that_nobody_can_write_is_told_apart_from_one_that_a_rack_would_end() -> None:
    snapshot = hand_made(
        RACKS, SOUND, min_in_sync={"paid": 2}, out_of_sync={("paid", 0, 1), ("paid", 0, 3), ("paid", 1, 6)}
    )
    stuck, lost = found(shop(), snapshot)
    assert (stuck.kind, stuck.partitions, stuck.found) == (K.NOT_WRITABLE, (0,), "1")
    assert (lost.kind, lost.partitions, lost.found) == (K.RACK_LOSS, (1,), "fewer without a, b")


def test_brokers_without_a_rack_are_named() -> None:
    snapshot = hand_made({1: "a", 2: "b", 3: None}, {"paid": [[1, 2, 3]]}, min_in_sync={"paid": 2})
    finding = only(shop(), snapshot)
    assert (finding.kind, finding.brokers) == (K.NO_RACK, (3,))


POOLS = {"vip": BrokerPool((1, 3, 5)), "open": BrokerPool((2,), exclusive=False)}
PLACED = {
    "pools": POOLS,
    "placement": (PlacementRule(("vip.*",), ("vip",)), PlacementRule(("few",), brokers=(2, 4, 6))),
}


def test_rules_allow_their_brokers_and_exclusive_pools_are_closed_to_others() -> None:
    snapshot = hand_made(RACKS, {"vip.paid": [[1]], "few": [[2]], "paid": [[2]]})
    rules = placement_rules(shop(**PLACED).clusters["one"], snapshot)
    allowed = {
        topic: snapshot.brokers.ids[row].tolist()
        for topic, row in zip(snapshot.topics.names, rules.allowed, strict=True)
    }
    assert allowed == {"few": [2, 4, 6], "paid": [2, 4, 6], "vip.paid": [1, 3, 5]}


def test_replicas_on_brokers_where_they_may_not_stand_are_found() -> None:
    topics = {"vip.paid": [[1, 3, 5], [1, 3, 6]], "paid": [[2, 4, 6], [1, 4, 6]]}
    snapshot = hand_made(RACKS, topics, min_in_sync={"paid": 2, "vip.paid": 2})
    other, vip = found(shop(**PLACED), snapshot)
    assert (other.kind, other.subject, other.partitions, other.brokers) == (K.PLACEMENT, "paid", (1,), (1,))
    assert (vip.kind, vip.subject, vip.partitions, vip.brokers) == (K.PLACEMENT, "vip.paid", (1,), (6,))
    assert vip.expected == "brokers 1, 3, 5"


def test_a_rule_whose_brokers_are_away_is_told_rather_than_every_replica() -> None:
    rule = PlacementRule(("paid",), brokers=(7, 8, 9))
    finding = only(shop(placement=(rule,)), hand_made(RACKS, SOUND, min_in_sync={"paid": 2}))
    assert (finding.kind, finding.subject) == (K.NO_BROKER_ALLOWED, "paid")


def test_racks_suffice_only_where_the_rule_allows_their_brokers() -> None:
    rule = PlacementRule(("paid",), brokers=(1, 2, 3), min_in_sync=1)
    snapshot = hand_made(RACKS, {"paid": [[1, 2, 3]]}, min_in_sync={"paid": 1})
    assert found(shop(placement=(rule,)), snapshot) == []


def test_topics_in_the_wrong_cluster_are_found_with_the_right_one() -> None:
    fleet = KafkaFleet(
        "f",
        {
            "one": FleetCluster(businesses=("shop",)),
            "vip": FleetCluster(businesses=("shop",), priority="vip"),
            "other": FleetCluster(businesses=("delivery",)),
        },
        (
            TopicOwner(("shop.vip.*",), "shop", "vip"),
            TopicOwner(("shop.*",), "shop"),
            TopicOwner(("delivery.*",), "delivery"),
        ),
    )
    topics = {name: [[1, 3, 5]] for name in ("shop.vip.paid", "shop.paid", "delivery.late", "stray")}
    result = audit(
        fleet,
        {
            "one": hand_made(RACKS, topics, min_in_sync=dict.fromkeys(topics, 2)),
            "vip": hand_made(RACKS, {"shop.vip.paid": [[1, 3, 5]]}, min_in_sync={"shop.vip.paid": 2}),
        },
    )
    assert [(each.kind, each.subject, each.expected, each.found) for each in result.findings] == [
        (K.WRONG_CLUSTER, "delivery.late", "other", "one"),
        (K.WRONG_CLUSTER, "shop.vip.paid", "vip", "one, and vip too"),
        (K.NO_OWNER, "stray", "a pattern of the registry that matches it", "none"),
    ]
    assert result.unchecked == (
        "one: who uses topics of other clusters (a recorded snapshot does not tell)",
        "other: no snapshot of it",
    )


def test_too_few_replicas_are_found() -> None:
    finding = only(
        shop(min_in_sync=1), hand_made(RACKS, {"paid": [[1, 3, 5], [2, 4]]}, min_in_sync={"paid": 1})
    )
    assert (finding.kind, finding.partitions, finding.found) == (K.REPLICATION_FACTOR, (1,), "2")


@pytest.mark.parametrize(
    ("replicas", "live", "severity"),
    [
        ([1, 3, 5], 3, Severity.CRITICAL),
        ([1, 3, 5], 4, Severity.CRITICAL),
        ([1, 3, 5], 1, Severity.WARNING),
        ([1, 3, 5], UNKNOWN, None),
        ([1, 3, 5], 2, None),
    ],
)
def test_min_insync_replicas_leaves_room_for_one_broker(
    replicas: list[int], live: int, severity: Severity | None
) -> None:
    snapshot = hand_made(RACKS, {"paid": [replicas]}, min_in_sync={"paid": live})
    severities = [each.severity for each in found(shop(), snapshot) if each.kind is K.MIN_IN_SYNC]
    assert severities == ([] if severity is None else [severity])


def test_one_replica_and_one_in_sync_is_no_finding() -> None:
    snapshot = hand_made(RACKS, {"paid": [[1]]}, min_in_sync={"paid": 1})
    assert found(shop(replication_factor=1, min_in_sync=1, racks="ignore"), snapshot) == []


def test_a_controller_among_the_brokers_is_found_where_roles_are_separate() -> None:
    sound = hand_made(RACKS, SOUND, min_in_sync={"paid": 2}, controller=6)
    assert only(shop(), sound).kind is K.COMBINED_ROLES
    assert only(shop(controllers=(5, 100)), sound).brokers == (5, 6)
    assert found(shop(roles="combined"), sound) == []
    assert found(shop(), dataclasses.replace(sound, controller=100)) == []


def test_a_pool_that_names_absent_brokers_is_found() -> None:
    pools = {"vip": BrokerPool((6, 7), exclusive=False)}
    finding = only(shop(pools=pools), hand_made(RACKS, SOUND, min_in_sync={"paid": 2}))
    assert (finding.kind, finding.brokers) == (K.ABSENT_BROKER, (7,))


def test_a_disk_fuller_than_the_reserve_is_found() -> None:
    snapshot = hand_made(RACKS, SOUND, min_in_sync={"paid": 2}, used_bytes={4: 900, 5: 800})
    finding = only(shop(reserve=CapacityReserve(disk_percent=15)), snapshot)
    assert (finding.kind, finding.subject, finding.found) == (K.DISK_RESERVE, "4:/d", "10.0 %")


def test_brokers_that_could_not_be_lost_are_found_by_pool() -> None:
    used = dict.fromkeys(RACKS, 500)
    snapshot = hand_made(RACKS, SOUND, min_in_sync={"paid": 2}, used_bytes=used)
    assert found(shop(reserve=CapacityReserve(20, brokers=1)), snapshot) == []  # 5 x 300 free for 500
    finding = only(shop(reserve=CapacityReserve(20, brokers=3)), snapshot)  # 3 x 300 free for 1500
    assert (finding.kind, finding.brokers) == (K.BROKER_RESERVE, (1, 2, 3))
    lone = {"lone": BrokerPool((6,))}
    rule = PlacementRule(("none",), ("lone",))
    reserve = CapacityReserve(20, brokers=1)
    finding = only(
        shop(
            reserve=reserve,
            pools=lone,
            placement=(rule,),
            replication_factor=1,
            min_in_sync=1,
            racks="ignore",
        ),
        hand_made(RACKS, {"paid": [[1]]}, min_in_sync={"paid": 1}, used_bytes=used),
    )
    assert (finding.kind, finding.subject) == (K.BROKER_RESERVE, "pool lone")


def test_quotas_that_differ_are_found_and_undeclared_ones_named() -> None:
    quotas = (
        Quota((("user", None),), "producer_byte_rate", 5.0),
        Quota((("user", "loud"),), "consumer_byte_rate", 7.0),
    )
    declared = (DeclaredQuota(user="<default>", producer_byte_rate=6.0, request_percentage=50.0),)
    snapshot = hand_made(RACKS, SOUND, min_in_sync={"paid": 2}, quotas=quotas)
    findings = found(shop(quotas=declared), snapshot)
    assert [(each.severity, each.subject, each.expected, each.found) for each in findings] == [
        (Severity.WARNING, "user=<default>", "producer_byte_rate=6", "5"),
        (Severity.WARNING, "user=<default>", "request_percentage=50", "none"),
        (Severity.INFO, "user=loud", "consumer_byte_rate=none", "7"),
    ]
    unread = MissingFact(QUOTAS_FACT, "no right to read them", ())
    no_rates = MissingFact("rates of partitions", "no metrics are read", FORBIDDEN_WITHOUT_RATES)
    unread_snapshot = dataclasses.replace(snapshot, missing=(unread, no_rates))
    result = audit(shop(quotas=declared), {"one": unread_snapshot})
    assert result.findings == ()
    assert result.unchecked == (f"one: {QUOTAS_FACT} (no right to read them)",)


def test_disks_that_are_not_known_are_left_unchecked_and_said_so() -> None:
    snapshot = hand_made(RACKS, SOUND, min_in_sync={"paid": 2}, used_bytes={4: DISK_BYTES})
    unknown = dataclasses.replace(snapshot.log_dirs, total_bytes=np.full(6, UNKNOWN, np.int64))
    result = audit(shop(), {"one": dataclasses.replace(snapshot, log_dirs=unknown)})
    assert result.findings == ()
    assert result.unchecked == ("one: how full 6 disks are, which their brokers do not say",)


def test_a_snapshot_of_another_cluster_is_refused() -> None:
    with pytest.raises(Refused, match="not of cluster one; expected Mk; found c"):
        audit(shop(cluster_id="Mk"), {"one": hand_made(RACKS, SOUND)})


def test_findings_are_the_same_for_the_same_input_and_travel_as_json() -> None:
    snapshot = hand_made(RACKS, {"b": [[1, 2, 3]], "a": [[1, 2, 3]]}, min_in_sync={"a": 3, "b": 2})
    first, again = audit(shop(), {"one": snapshot}), audit(shop(), {"one": snapshot})
    assert first == again
    assert msgspec.json.decode(msgspec.json.encode(first), type=type(first)) == first
