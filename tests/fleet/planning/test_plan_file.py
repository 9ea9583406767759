"""A plan's files: its own gives it back and betrays edits, Kafka's is what its tool reads; and what may not
be carried out is refused by type."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rtolap.base.errors import (
    Corrupted,
    NotFound,
    OtherCluster,
    PlanChanged,
    PlanOutdated,
    PlanRefused,
    SchemaTooNew,
)
from rtolap.fleet.planning.disks import plan_disks
from rtolap.fleet.planning.drain import plan_drain
from rtolap.fleet.planning.leaders import plan_leaders
from rtolap.fleet.planning.plan import Assignment, Plan
from rtolap.fleet.planning.plan_diff import difference
from rtolap.fleet.planning.plan_file import (
    kafka_json,
    load_plan,
    plan_digest,
    plan_from,
    plan_json,
    save_plan,
)
from rtolap.fleet.planning.rules import check_applies
from rtolap.fleet.snapshot.model import UNKNOWN, FleetSnapshot

from tests.support.fleet.hand_made import hand_made
from tests.support.fleet.random_fleets import huge_fleet

RACKS = {1: "a", 2: "b", 3: "a", 4: "b"}
TOPICS = {"orders": [[1, 2], [1, 2], [2, 1]], "shop": [[1, 2]]}


def _fleet() -> FleetSnapshot:
    return huge_fleet(brokers=8, racks=4, replicas=900, topics=20)


def test_a_plan_comes_back_from_its_file(tmp_path: Path) -> None:
    plan = plan_disks(_fleet())
    save_plan(plan, tmp_path / "plan.json")
    back = load_plan(tmp_path / "plan.json")
    assert plan_json(back) == (tmp_path / "plan.json").read_bytes() == plan_json(plan_disks(_fleet()))
    assert plan_digest(back) == plan_digest(plan) == json.loads(plan_json(plan))["digest"]
    assert (back.moved_bytes, back.copy_time.expected_s, len(back.moves)) == (
        plan.moved_bytes,
        plan.copy_time.expected_s,
        len(plan.moves),
    )
    np.testing.assert_array_equal(back.moves.from_brokers, plan.moves.from_brokers)
    np.testing.assert_array_equal(back.bytes_in_per_s, plan.bytes_in_per_s)
    assert (plan.bytes_in_per_s > 0).all()
    without = plan_drain(hand_made(RACKS, TOPICS), [1])
    assert b"bytes_in_per_s" not in plan_json(without)
    assert np.isnan(plan_from(plan_json(without)).bytes_in_per_s).all()


def test_kafkas_tool_gets_each_partition_with_its_replicas_and_directories() -> None:
    plan = plan_drain(hand_made(RACKS, TOPICS), [1])
    assert json.loads(kafka_json(plan)) == {
        "version": 1,
        "partitions": [
            {"topic": "orders", "partition": 0, "replicas": [3, 2], "log_dirs": ["/d", "any"]},
            {"topic": "orders", "partition": 1, "replicas": [3, 2], "log_dirs": ["/d", "any"]},
            {"topic": "orders", "partition": 2, "replicas": [2, 3], "log_dirs": ["any", "/d"]},
            {"topic": "shop", "partition": 0, "replicas": [3, 2], "log_dirs": ["/d", "any"]},
        ],
    }


def test_what_only_elects_a_leader_is_not_for_kafkas_tool() -> None:
    fleet = hand_made(RACKS, {"orders": [[1, 2], [2, 1]]})
    other_leader = replace(fleet.partitions, leaders=np.array([1, 1], np.int32))
    plan = plan_leaders(replace(fleet, partitions=other_leader))
    assert plan.elections.tolist() == [0]
    assert not len(plan.moves)
    assert json.loads(kafka_json(plan))["partitions"] == []
    assert plan_from(plan_json(plan)).elections.tolist() == [0]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"replicas":[3,2]', b'"replicas":[4,2]'),
        (b'"kind":"drain"', b'"kind":"disks"'),
        (b'"throttle_bytes_per_s":50000000', b'"throttle_bytes_per_s":90000000'),
        (b'"brokers":"1"', b'"brokers":"2"'),
        (b'"size_bytes":1', b'"size_bytes":2'),
    ],
)
def test_an_edited_plan_is_refused(old: bytes, new: bytes) -> None:
    data = plan_json(plan_drain(hand_made(RACKS, TOPICS), [1]))
    assert old in data
    with pytest.raises(PlanChanged, match="not what its planner wrote"):
        plan_from(data.replace(old, new, 1))


def test_what_is_no_plan_is_named(tmp_path: Path) -> None:
    data = plan_json(plan_drain(hand_made(RACKS, TOPICS), [1]))
    for damaged in (
        b"",
        b"{}",
        data[:-40],
        data.replace(b'"version":2', b'"version":0', 1),
        kafka_json(_plan()),
    ):
        with pytest.raises(Corrupted, match="no readable plan"):
            plan_from(damaged)
    with pytest.raises(SchemaTooNew, match="version 2"):
        plan_from(data.replace(b'"version":2', b'"version":3,"more":3', 1))
    with pytest.raises(NotFound):
        load_plan(tmp_path / "none")


def _plan() -> Plan:
    return plan_drain(hand_made(RACKS, TOPICS), [1])


def test_a_plan_for_another_cluster_or_an_older_state_is_refused() -> None:
    check_applies(_plan(), hand_made(RACKS, TOPICS))
    with pytest.raises(OtherCluster, match="another cluster"):
        check_applies(_plan(), hand_made(RACKS, TOPICS, cluster_id="d"))
    with pytest.raises(PlanOutdated, match=r"orders-2 has replicas \[2, 1\]"):
        check_applies(_plan(), hand_made(RACKS, {**TOPICS, "orders": [[1, 2], [1, 2], [2, 3]]}))
    with pytest.raises(PlanOutdated, match="shop-0"):
        check_applies(_plan(), hand_made(RACKS, {"orders": TOPICS["orders"]}))
    # A topic more, or a fuller disk, takes nothing from it.
    check_applies(_plan(), hand_made(RACKS, {**TOPICS, "new": [[4, 3]]}, used_bytes={4: 100}))


def test_a_fleet_that_no_longer_takes_the_plan_refuses_it() -> None:
    for changed, told in (
        (hand_made(RACKS, TOPICS, fenced=[3]), "takes none"),
        (hand_made(RACKS, TOPICS, offline=[3]), "takes none"),
        (hand_made(RACKS, TOPICS, cordoned=[3]), "takes none"),
        (hand_made(RACKS, TOPICS, used_bytes={3: 899}), "overfill"),
        (hand_made({**RACKS, 3: "b"}, TOPICS), "fewer racks"),
        (hand_made(RACKS, TOPICS, removing=[("shop", 0, 2)]), "being moved already"),
    ):
        with pytest.raises(PlanRefused, match=told):
            check_applies(_plan(), changed)
    fleet = hand_made(RACKS, TOPICS)
    headless = replace(fleet.partitions, leaders=np.full(4, UNKNOWN, np.int32))
    with pytest.raises(PlanRefused, match="no leader"):
        check_applies(_plan(), replace(fleet, partitions=headless))


@pytest.mark.parametrize(
    ("brokers", "told"),
    [
        ([3, 3], "two replicas on one broker"),
        ([3], "fewer than before"),
        ([3, 1], "fewer racks"),
        ([3, 9], "takes none"),
    ],
)
def test_a_plan_that_breaks_a_rule_is_refused_whoever_made_it(brokers: list[int], told: str) -> None:
    """Also one with a digest of its own."""
    plan = _plan()
    first = np.concatenate(([0], np.full(4, 2).cumsum()))
    first[1:] += len(brokers) - 2
    places = {1: 0, 2: 1, 3: 2, 4: 3}
    others, dirs = plan.after.brokers[2:], plan.after.log_dirs[2:]
    forged = replace(
        plan,
        after=Assignment(
            first,
            np.concatenate((brokers, others)).astype(np.int32),
            np.concatenate(([places.get(broker, 0) for broker in brokers], dirs)).astype(np.int32),
        ),
    )
    with pytest.raises(PlanRefused, match=told):
        check_applies(forged, hand_made(RACKS, TOPICS))


def test_two_plans_are_compared_by_partition() -> None:
    fleet = hand_made(RACKS, TOPICS)
    one = plan_drain(fleet, [1])
    assert difference(one, one).same == 4
    other = plan_drain(hand_made(RACKS, {"orders": [[2, 1], [2, 3]], "shop": [[3, 2]]}), [2])
    found = difference(one, other)
    assert (found.same, found.only_first, found.only_second) == (0, ("orders-2",), ())
    assert found.elsewhere == ("orders-0", "orders-1", "shop-0")


def test_time_is_told_by_the_broker_that_has_most_to_do() -> None:
    plan = replace(_plan(), partition_bytes=np.array([100, 100, 100, 50], np.int64), throttle_bytes_per_s=10)
    # Broker 3 gets 350 bytes; brokers 1 and 2 send 250 and 100 of them.
    assert plan.copy_time.expected_s == 35
