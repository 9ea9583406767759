"""Placement repair brings replicas to where their topics may stand, and breaks no other rule."""

from __future__ import annotations

import numpy as np
import pytest
from rtolap.base.errors import ImpossiblePlan, IncompleteSnapshot, NotYet
from rtolap.fleet.isolation.placement import placement_rules
from rtolap.fleet.planning.plan import Limits
from rtolap.fleet.planning.plan_file import plan_from, plan_json
from rtolap.fleet.planning.repairs import plan_placement
from rtolap.fleet.planning.rules import check_applies
from rtolap.model.fleet import BrokerPool, FleetCluster, PlacementRule

from tests.support.fleet.hand_made import hand_made
from tests.support.fleet.random_fleets import random_fleet
from tests.support.seeds import so_many

RACKS = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
CLUSTER = FleetCluster(
    businesses=("shop",),
    pools={"vip": BrokerPool((1, 3, 5))},
    placement=(PlacementRule(("vip*",), ("vip",)),),
)
FLEETS = so_many(100, 200)


def test_each_misplaced_replica_goes_where_its_topic_may_stand() -> None:
    snapshot = hand_made(RACKS, {"vip": [[1, 3, 6]], "other": [[2, 4, 5]]})
    rules = placement_rules(CLUSTER, snapshot)
    plan = plan_placement(snapshot, limits=Limits(allowed=rules.allowed_brokers))
    after = {
        plan.topics[plan.partition_topics[row]]: plan.after.brokers[
            plan.after.first[row] : plan.after.first[row + 1]
        ].tolist()
        for row in range(len(plan))
    }
    assert after == {"vip": [1, 3, 5], "other": [2, 4, 6]}
    check_applies(plan_from(plan_json(plan)), snapshot)


def test_nothing_moves_where_all_stand_as_they_may() -> None:
    snapshot = hand_made(RACKS, {"vip": [[1, 3, 5]], "other": [[2, 4, 6]]})
    rules = placement_rules(CLUSTER, snapshot)
    assert len(plan_placement(snapshot, limits=Limits(allowed=rules.allowed_brokers))) == 0


def test_a_rule_that_cannot_be_kept_is_told() -> None:
    snapshot = hand_made(RACKS, {"vip": [[1, 3, 6]]}, absent=[5])
    rules = placement_rules(CLUSTER, snapshot)
    with pytest.raises(ImpossiblePlan, match="placement repair"):
        plan_placement(snapshot, limits=Limits(allowed=rules.allowed_brokers))


@pytest.mark.seeded
def test_plans_of_drawn_fleets_keep_every_rule_and_leave_nothing_misplaced() -> None:
    made = 0
    for seed in range(FLEETS):
        snapshot = random_fleet(seed)
        ids = snapshot.brokers.ids
        pool = BrokerPool(tuple(ids[::2].tolist()), exclusive=False)
        rule = PlacementRule((snapshot.topics.names[0],), ("own",))
        cluster = FleetCluster(businesses=("shop",), pools={"own": pool}, placement=(rule,))
        rules = placement_rules(cluster, snapshot)
        try:
            plan = plan_placement(snapshot, limits=Limits(allowed=rules.allowed_brokers))
        except (ImpossiblePlan, IncompleteSnapshot, NotYet):
            continue
        made += len(plan) > 0
        check_applies(plan, snapshot)
        planned = [plan.topics[topic] for topic in plan.partition_topics]
        assert set(planned) <= {snapshot.topics.names[0]}, f"seed {seed}"
        assert np.isin(plan.after.brokers, ids[::2]).all(), f"seed {seed}"
    assert made > FLEETS // 10
