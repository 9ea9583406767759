"""A plan made of the fleet that a plan leads to is empty, whatever the planner; and that fleet is the one
that a slow cluster ends with.

Replay one: `pytest tests/fleet/planning/test_second_plans.py` with the same RTOLAP_SEEDS; the seed is named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from rtolap.base.errors import DefinitionError, ImpossiblePlan, IncompleteSnapshot, NotYet
from rtolap.fleet.isolation.placement import placement_rules
from rtolap.fleet.planning.add_brokers import plan_add
from rtolap.fleet.planning.disks import plan_disks
from rtolap.fleet.planning.drain import plan_drain, plan_remove_disk
from rtolap.fleet.planning.factor import plan_factor
from rtolap.fleet.planning.leaders import plan_leaders
from rtolap.fleet.planning.leaders_by_load import plan_leaders_by_load
from rtolap.fleet.planning.plan import Limits, Plan
from rtolap.fleet.planning.repairs import plan_placement, plan_racks
from rtolap.fleet.planning.rules import check_applies
from rtolap.fleet.snapshot.model import UNKNOWN, FleetSnapshot

from tests.support.fleet.hand_made import state_after
from tests.support.fleet.random_fleets import NONE, Oddities, random_fleet
from tests.support.fleet.random_rules import random_rules
from tests.support.fleet.slow_cluster import SlowCluster
from tests.support.seeds import so_many

FLEETS = so_many(18, 40)
REFUSALS = (ImpossiblePlan, IncompleteSnapshot, NotYet, DefinitionError)
Planner = Callable[[FleetSnapshot, Limits], Plan]


def _first_disk(fleet: FleetSnapshot) -> tuple[int, str]:
    return int(fleet.brokers.ids[fleet.log_dirs.brokers[0]]), fleet.log_dirs.paths[0]


PLANNERS: dict[str, Planner] = {
    "disks": lambda fleet, limits: plan_disks(fleet, tolerance=0.05, limits=limits, runs=1),
    "leaders": lambda fleet, limits: plan_leaders(fleet, limits=limits),
    "leaders-by-load": lambda fleet, limits: plan_leaders_by_load(fleet, limits=limits),
    "rack": lambda fleet, limits: plan_racks(fleet, limits=limits),
    "drain": lambda fleet, limits: plan_drain(fleet, [int(fleet.brokers.ids[-1])], limits=limits),
    "remove-disk": lambda fleet, limits: plan_remove_disk(fleet, *_first_disk(fleet), limits=limits),
    "add": lambda fleet, limits: plan_add(fleet, [int(fleet.brokers.ids[0])], limits=limits),
    "factor": lambda fleet, limits: plan_factor(fleet, fleet.topics.names[:2], 2, limits=limits),
    "placement": lambda fleet, limits: plan_placement(fleet, limits=limits),
}


def _fleet(seed: int) -> tuple[FleetSnapshot, Limits]:
    """Every third has placement rules; a third of the replicas of every other are empty."""
    odd = Oddities(0.1, 0.1, 0.05, 0.05, 0.1, 0.3) if seed % 4 == 0 else NONE
    fleet = random_fleet(seed, odd=odd, brokers_max=12, factor_max=3)
    if seed % 2:
        empty = np.isin(fleet.replicas.partitions, np.flatnonzero(np.arange(len(fleet.partitions)) % 3 == 0))
        sizes = np.where(empty & (fleet.replicas.size_bytes != UNKNOWN), 0, fleet.replicas.size_bytes)
        fleet = replace(fleet, replicas=replace(fleet.replicas, size_bytes=sizes))
    if seed % 3:
        return fleet, Limits()
    return fleet, Limits(allowed=placement_rules(random_rules(seed, fleet), fleet).allowed_brokers)


@pytest.mark.seeded
@pytest.mark.parametrize("name", PLANNERS)
def test_the_second_plan_is_empty_and_the_first_leads_to_where_a_cluster_ends(name: str) -> None:
    plan_of, met = PLANNERS[name], Counter[str]()
    for seed in range(FLEETS):
        fleet, limits = _fleet(seed)
        try:
            plan = plan_of(fleet, limits)
        except REFUSALS:
            met["refused"] += 1
            continue
        check_applies(plan, fleet, allowed=limits.allowed)
        state = state_after(plan, fleet)
        state.check()
        cluster = SlowCluster(fleet, disk_limit=plan.disk_limit)
        cluster.carry_out(plan, seed, hoarding=True)
        ends = SlowCluster(state, disk_limit=plan.disk_limit)
        placed = {
            which: {at: [replica.broker for replica in those] for at, those in each.replicas.items()}
            for which, each in (("ends", cluster), ("told", ends))
        }
        assert placed["ends"] == placed["told"], f"seed {seed}"
        used = {
            which: {at: disk.used for at, disk in each.disks.items() if disk.takes}
            for which, each in (("ends", cluster), ("told", ends))
        }
        assert used["ends"] == used["told"], f"seed {seed}"
        if plan.left_out:  # only what it could not do is left
            with suppress(*REFUSALS):
                second = plan_of(state, limits)
                assert (len(second), second.left_out) == (0, plan.left_out), f"seed {seed}"
            met["left out"] += 1
            continue
        second = plan_of(state, limits)
        assert len(second) == 0, f"seed {seed}: {second.why}, after {plan.why}"
        met["planned" if len(plan) else "still"] += 1
    assert met["planned"] + met["left out"] >= 1, met


@pytest.mark.seeded
@pytest.mark.parametrize("name", ["disks", "add"])
def test_no_replica_that_holds_nothing_is_moved_to_make_disks_more_even(name: str) -> None:
    moved = 0
    for seed in range(1, 2 * FLEETS, 2):
        fleet, limits = _fleet(seed)
        try:
            plan = PLANNERS[name](fleet, limits)
        except REFUSALS:
            continue
        assert (plan.moves.size_bytes > 0).all(), f"seed {seed}"
        moved += len(plan.moves)
    assert moved
