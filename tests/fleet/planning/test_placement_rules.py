"""Every planner keeps to placement rules when it is told them: nothing comes to where its topic may not
stand, and what stands wrong already may stay or leave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from rtolap.base.errors import ImpossiblePlan, PlanRefused
from rtolap.fleet.isolation.placement import placement_rules
from rtolap.fleet.planning.add_brokers import plan_add
from rtolap.fleet.planning.disks import plan_disks
from rtolap.fleet.planning.drain import plan_drain, plan_remove_disk
from rtolap.fleet.planning.factor import plan_factor
from rtolap.fleet.planning.plan import Limits, Plan
from rtolap.fleet.planning.repairs import plan_racks
from rtolap.fleet.planning.rules import check_applies
from rtolap.fleet.snapshot.model import FleetSnapshot
from rtolap.model.fleet import BrokerPool, FleetCluster, PlacementRule

from tests.support.fleet.hand_made import hand_made
from tests.support.fleet.random_fleets import huge_fleet

RACKS = {1: "a", 2: "b", 3: "a", 4: "b", 5: "c", 6: "c"}
VIP = (1, 4, 5)


def _limits(snapshot: FleetSnapshot, brokers: tuple[int, ...] = VIP, match: str = "vip") -> Limits:
    """Topics of `match` stand on these brokers, and no other topic does."""
    cluster = FleetCluster(
        businesses=("shop",),
        pools={"vip": BrokerPool(brokers)},
        placement=(PlacementRule((match,), ("vip",)),),
    )
    return Limits(allowed=placement_rules(cluster, snapshot).allowed_brokers)


def _after(plan: Plan) -> list[list[int]]:
    first = plan.after.first
    return [plan.after.brokers[first[row] : first[row + 1]].tolist() for row in range(len(plan))]


@pytest.mark.parametrize(
    ("replicas", "planner", "free", "ruled"),
    [
        pytest.param([[1, 2]], lambda fleet, limits: plan_drain(fleet, [2], limits=limits), 6, 5, id="drain"),
        pytest.param([[1, 3]], lambda fleet, limits: plan_racks(fleet, limits=limits), 2, 5, id="rack"),
        pytest.param(
            [[5]], lambda fleet, limits: plan_factor(fleet, ["vip"], 2, limits=limits), 2, 1, id="factor"
        ),
        pytest.param(
            [[1, 2]],
            lambda fleet, limits: plan_remove_disk(fleet, 2, "/d", limits=limits),
            6,
            5,
            id="remove-disk",
        ),
    ],
)
def test_a_replica_goes_to_the_idlest_broker_where_its_topic_may_stand(
    replicas: list[list[int]],
    planner: Callable[[FleetSnapshot, Limits], Plan],
    free: int,
    ruled: int,
) -> None:
    """Without rules, to the idlest of all."""
    fleet = hand_made(RACKS, {"vip": replicas}, used_bytes={4: 400, 5: 300, 3: 200, 1: 200})
    limits = _limits(fleet)
    unruled = planner(fleet, Limits())
    assert free in _after(unruled)[0]
    assert ruled in _after(planner(fleet, limits))[0]
    check_applies(unruled, fleet)
    with pytest.raises(PlanRefused, match=r"vip-0 comes to a broker where its topic may not stand"):
        check_applies(unruled, fleet, allowed=limits.allowed)


def test_without_a_place_that_the_rules_allow_the_plan_says_so() -> None:
    fleet = hand_made(RACKS, {"vip": [[1, 4, 5]], "other": [[2, 3, 6]]})
    with pytest.raises(ImpossiblePlan, match="3 that are of brokers where its topic may not stand"):
        plan_drain(fleet, [1], limits=_limits(fleet))


def test_what_stands_wrong_may_stay_and_is_not_brought_to_another_wrong_place() -> None:
    fleet = hand_made(RACKS, {"vip": [[2, 3], [3, 2]]})
    limits = _limits(fleet)
    plan = plan_drain(fleet, [3], limits=limits)
    assert _after(plan) == [[2, 1], [5, 2]]
    check_applies(plan, fleet, allowed=limits.allowed)


def test_disks_are_evened_out_within_the_groups_that_rules_make() -> None:
    """A pool is less full than the others can ever be, and nothing may pass between them."""
    vip = {"vip": [[1]] * 40 + [[4]] * 20}
    other = {"other": [[2]] * 80 + [[3]] * 50 + [[6]] * 20}
    fleet = hand_made(dict.fromkeys(RACKS), {**vip, **other})
    used = np.bincount(fleet.replicas.log_dirs, minlength=len(fleet.log_dirs)) * 10
    fleet = replace(
        fleet,
        replicas=replace(fleet.replicas, size_bytes=np.full(len(fleet.replicas), 10)),
        log_dirs=replace(fleet.log_dirs, usable_bytes=fleet.log_dirs.total_bytes - used),
    )
    limits = _limits(fleet)
    plan = plan_disks(fleet, limits=limits, tolerance=0.01, runs=0)
    check_applies(plan, fleet, allowed=limits.allowed)
    after = dict(zip(plan.disks.brokers.tolist(), plan.disks.after_bytes.tolist(), strict=True))
    for brokers, mean in ((VIP, 200), ((2, 3, 6), 500)):
        assert all(abs(after[broker] - mean) <= 10 for broker in brokers), after


def test_an_added_broker_gets_only_what_may_stand_there() -> None:
    fleet = huge_fleet(brokers=12, racks=3, replicas=3_000, topics=40, empty_brokers=1)
    limits = _limits(fleet, (0, 3, 6, 9), "topic-0000*")
    plan = plan_add(fleet, [11], limits=limits)
    assert len(plan.moves)
    assert not any(name.startswith("topic-0000") for name in plan.topics)
    assert any(name.startswith("topic-0000") for name in plan_add(fleet, [11]).topics)


def test_disks_of_an_exclusive_pool_keep_their_topics() -> None:
    fleet = huge_fleet(brokers=12, racks=3, replicas=6_000, topics=40)
    limits = _limits(fleet, (0, 1, 2, 3, 4, 5), "topic-0000*")
    plan = plan_disks(fleet, limits=limits)
    assert plan.bounds.after_bytes < plan.bounds.before_bytes
    check_applies(plan, fleet, allowed=limits.allowed)
    with pytest.raises(PlanRefused, match="may not stand"):
        check_applies(plan_disks(fleet), fleet, allowed=limits.allowed)
