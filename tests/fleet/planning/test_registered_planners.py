"""Planners: each decision has one, and it plans as its function does."""

from __future__ import annotations

import random
from typing import Any

import pytest
from rtolap.base.errors import ImpossiblePlan, IncompleteSnapshot, NotYet, PlanChanged, Refused
from rtolap.fleet.isolation.registry import RegisteredCluster
from rtolap.fleet.operations.plans import check_approved, make_plan
from rtolap.fleet.planning import decisions
from rtolap.fleet.planning.decisions import Planner
from rtolap.fleet.planning.plan import Limits, Plan, PlanKind
from rtolap.fleet.planning.plan_file import plan_digest
from rtolap.fleet.snapshot.model import FleetSnapshot

from tests.support.fleet.hand_made import hand_made
from tests.support.seeds import so_many

FLEETS = so_many(5, 50)
RACKS = {1: "a", 2: "b", 3: "a", 4: "b"}
REFUSALS = (ImpossiblePlan, IncompleteSnapshot, NotYet)


def _fleet(seed: int) -> FleetSnapshot:
    """Return four brokers in two racks with topics of two replicas and of one, which stand anywhere."""
    drawn = random.Random(seed)
    return hand_made(RACKS, {"t": [drawn.sample(list(RACKS), 2) for _ in range(12)], "u": [[1], [2]]})


def _planner(kind: PlanKind, fleet: FleetSnapshot) -> Planner:
    """Return the planner of this kind, with what it needs to know beside the fleet."""
    first = int(fleet.log_dirs.brokers[0])
    broker, path = int(fleet.brokers.ids[first]), fleet.log_dirs.paths[0]
    planners: dict[PlanKind, Planner] = {
        PlanKind.DISKS: decisions.disks(),
        PlanKind.LEADERS: decisions.LEADERS,
        PlanKind.LEADERS_BY_LOAD: decisions.LEADERS_BY_LOAD,
        PlanKind.RACK: decisions.RACKS,
        PlanKind.PLACEMENT: decisions.PLACEMENT,
        PlanKind.DRAIN: decisions.drain([broker]),
        PlanKind.ADD: decisions.add([broker]),
        PlanKind.REMOVE_DISK: decisions.remove_disk(broker, path),
        PlanKind.FACTOR: decisions.factor(("u",), 2),
    }
    return planners[kind]


@pytest.mark.seeded
@pytest.mark.parametrize("kind", list(PlanKind))
def test_a_plan_is_a_function_of_the_snapshot_and_says_which_decision_it_is(kind: PlanKind) -> None:
    planned: list[Plan] = []
    for seed in range(FLEETS):
        fleet = _fleet(seed)
        try:
            plan = make_plan(_planner(kind, fleet), fleet, None)
        except REFUSALS:
            continue
        assert plan.kind is kind
        assert plan_digest(plan) == plan_digest(_planner(kind, fleet).plan(fleet, limits=Limits()))
        planned.append(plan)
    assert bool(planned) is (kind is not PlanKind.LEADERS_BY_LOAD), "these fleets say nothing of loads"


def test_placement_rules_are_asked_for_by_planners_that_move_replicas_alone() -> None:
    class Rules(RegisteredCluster):
        def allowed_brokers(self, snapshot: FleetSnapshot) -> Any:
            raise Refused("the rules were read")

    fleet = _fleet(1)
    registered = Rules("one", None, "default")  # type: ignore[arg-type]
    planners = {kind: _planner(kind, fleet) for kind in PlanKind}
    for planner in planners.values():
        if planner.moves_replicas:
            with pytest.raises(Refused, match="the rules were read"):
                make_plan(planner, fleet, registered)
    still = {kind for kind, planner in planners.items() if not planner.moves_replicas}
    assert still == {PlanKind.LEADERS, PlanKind.LEADERS_BY_LOAD}


def test_a_plan_is_approved_by_its_digest_or_a_beginning_that_is_long_enough() -> None:
    plan = make_plan(decisions.disks(), _fleet(1), None)
    digest = plan_digest(plan)
    check_approved(plan, digest)
    check_approved(plan, digest[:8])
    other = plan_digest(make_plan(decisions.disks(), _fleet(2), None))
    for wrong in (digest[:7], other, other[:8], ""):
        with pytest.raises(PlanChanged, match="is not the one that was approved"):
            check_approved(plan, wrong)
