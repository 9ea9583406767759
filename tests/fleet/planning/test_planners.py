"""What each planner decides for fleets that are small enough to see it, and what it refuses, with the
reason."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from rtolap.base.errors import DefinitionError, ImpossiblePlan, IncompleteSnapshot, NotFound, NotYet
from rtolap.fleet.planning.add_brokers import plan_add
from rtolap.fleet.planning.disks import plan_disks
from rtolap.fleet.planning.drain import plan_drain, plan_remove_disk
from rtolap.fleet.planning.factor import plan_factor
from rtolap.fleet.planning.leaders import plan_leaders
from rtolap.fleet.planning.levels import band_of, levels
from rtolap.fleet.planning.plan import Limits, Plan, PlanKind
from rtolap.fleet.planning.plan_file import kafka_json
from rtolap.fleet.planning.repairs import plan_racks
from rtolap.fleet.planning.transfers import largest_first
from rtolap.fleet.snapshot.model import FleetSnapshot, MissingFact

from tests.support.fleet.hand_made import DISK_BYTES, hand_made
from tests.support.fleet.random_fleets import huge_fleet

TWO_RACKS = {1: "a", 2: "b", 3: "a", 4: "b"}
NO_RACKS: dict[int, str | None] = {1: None, 2: None, 3: None}


def _replicas(plan: Plan) -> dict[str, list[int]]:
    found = json.loads(kafka_json(plan))["partitions"]
    return {f"{row['topic']}-{row['partition']}": row["replicas"] for row in found}


def _sized(fleet: FleetSnapshot, sizes: list[int]) -> FleetSnapshot:
    """With replicas of these sizes, and disks that hold just them."""
    used = np.bincount(fleet.replicas.log_dirs, sizes, len(fleet.log_dirs)).astype(np.int64)
    return replace(
        fleet,
        replicas=replace(fleet.replicas, size_bytes=np.array(sizes, np.int64)),
        log_dirs=replace(fleet.log_dirs, usable_bytes=DISK_BYTES - used),
    )


def test_the_full_disk_gives_to_the_idlest() -> None:
    fleet = _sized(hand_made(NO_RACKS, {"t": [[1], [1], [1], [1], [2], [2], [3]]}), [100] * 7)
    plan = plan_disks(fleet, tolerance=0.07)
    assert list(_replicas(plan).values()) == [[3]]
    assert plan.bounds.after_bytes == 0
    assert "10.0% to 40.0% full" in plan.why[0]


def test_nothing_moves_where_nothing_is_gained() -> None:
    even = _sized(hand_made(NO_RACKS, {"t": [[1], [2], [3]]}), [100, 110, 105])
    assert not len(plan_disks(even).moves)
    # One replica that is larger than the whole difference only changes who has too much.
    odd = _sized(hand_made({1: None, 2: None}, {"t": [[1]]}), [500])
    assert not len(plan_disks(odd, tolerance=0.05).moves)
    with pytest.raises(DefinitionError, match="tolerance"):
        plan_disks(even, tolerance=0)


def test_moves_are_few_and_bytes_are_least() -> None:
    fleet = huge_fleet(brokers=30, racks=5, replicas=90_000, topics=400)
    plan = plan_disks(fleet)
    assert plan.bounds.after_bytes == 0
    assert plan.moved_bytes <= 1.02 * plan.bounds.before_bytes
    shares = plan.disks.utilisation(plan.disks.after_bytes)
    mean = plan.disks.after_bytes.sum() / plan.disks.total_bytes.sum()
    assert np.abs(shares - mean).max() <= 0.0301
    assert len(plan.moves) < 0.1 * len(fleet.replicas)
    assert plan.between_disks_bytes > 0


def test_levels_hold_just_the_bytes_that_the_band_demands() -> None:
    used, total = np.array([90, 60, 40, 10]), np.array([100, 100, 100, 100])
    band = band_of(used, total, 0.1)
    assert (band.low_bytes.tolist(), band.high_bytes.tolist()) == ([40] * 4, [60] * 4)
    assert band.least_bytes(used) == 30
    down, up = levels(used, total, band)
    assert down.tolist() == [60] * 4
    assert up.tolist() == [40] * 4
    assert largest_first(np.array([9, 7, 5, 5, 2, 1]), 17).tolist() == [0, 1, 5]


def test_leaders_are_evened_out_by_order_alone_along_the_shortest_ways() -> None:
    fleet = hand_made(NO_RACKS, {"t": [[1, 2], [1, 2], [1, 2], [1, 2], [2, 3], [2, 3]]})
    plan = plan_leaders(fleet)
    leading = [replicas[0] for replicas in _replicas(plan).values()]
    assert len(leading) == len(plan.elections)
    assert not len(plan.moves)
    assert "0 to 4 partitions by preference, afterwards 2 to 2" in plan.why[0]


def test_a_preferred_replica_that_does_not_lead_is_elected_and_one_that_cannot_is_replaced() -> None:
    fleet = hand_made(NO_RACKS, {"t": [[1, 2], [2, 3], [3, 1]]}, out_of_sync=[("t", 0, 1)], fenced=[3])
    led = replace(fleet.partitions, leaders=np.array([1, 2, 0], np.int32))
    plan = plan_leaders(replace(fleet, partitions=led))
    assert _replicas(plan)["t-0"] == [2, 1]
    assert _replicas(plan)["t-2"] == [1, 3]


def test_rack_repair_moves_the_later_of_two_that_share_a_rack() -> None:
    plan = plan_racks(hand_made(TWO_RACKS, {"t": [[1, 3], [1, 2]]}, used_bytes={2: 500}))
    assert _replicas(plan) == {"t-0": [1, 4]}
    with pytest.raises(ImpossiblePlan, match=r"at most 2; found t-0"):
        plan_racks(hand_made(TWO_RACKS, {"t": [[1, 2, 3]]}))
    with pytest.raises(ImpossiblePlan, match=r"no broker names its rack"):
        plan_racks(hand_made(NO_RACKS, {"t": [[1, 2]]}))
    with pytest.raises(ImpossiblePlan, match="would be above 90% with it"):
        plan_racks(hand_made(TWO_RACKS, {"t": [[1, 3]]}, used_bytes={2: 900, 4: 950}))


def test_a_drained_broker_keeps_preference_and_racks() -> None:
    fleet = hand_made(TWO_RACKS, {"t": [[1, 2], [2, 1], [4, 1]]})
    assert _replicas(plan_drain(fleet, [1])) == {"t-0": [3, 2], "t-1": [2, 3], "t-2": [4, 3]}
    with pytest.raises(ImpossiblePlan, match="in racks that would hold it too often"):
        plan_drain(fleet, [1, 3])
    with pytest.raises(NotFound, match="no such broker"):
        plan_drain(fleet, [7])


def test_a_dead_broker_is_drained_from_its_leaders() -> None:
    racks = {1: None, 2: "b", 3: "a", 4: "b"}
    fleet = hand_made(racks, {"t": [[1, 2]], "u": [[1]]}, absent=[1])
    led = replace(fleet.partitions, leaders=np.array([1, -1], np.int32))
    with pytest.raises(ImpossiblePlan, match=r"no leader to copy from; found u-0"):
        plan_drain(replace(fleet, partitions=led), [1])
    fleet = hand_made(racks, {"t": [[1, 2]]}, absent=[1])
    led = replace(fleet.partitions, leaders=np.array([1], np.int32))
    assert _replicas(plan_drain(replace(fleet, partitions=led), [1])) == {"t-0": [3, 2]}


def test_what_is_being_moved_already_is_waited_for() -> None:
    fleet = hand_made(TWO_RACKS, {"t": [[1, 2]]}, removing=[("t", 0, 1)])
    with pytest.raises(NotYet, match="being moved already"):
        plan_drain(fleet, [1])


def test_a_disk_is_emptied_onto_its_neighbours_while_they_are_below_the_mean() -> None:
    fleet = huge_fleet(brokers=6, racks=3, replicas=600, topics=10)
    plan = plan_remove_disk(fleet, 2, "/data/1", limits=Limits(disk_limit=0.98))
    assert plan.between_disks_bytes > 0
    assert plan.between_brokers_bytes > 0
    with pytest.raises(NotFound, match="no such log directory"):
        plan_remove_disk(fleet, 2, "/data/7")


def test_new_brokers_are_filled_to_the_mean_and_nothing_else_moves() -> None:
    fleet = huge_fleet(brokers=12, racks=3, replicas=9_000, topics=100, empty_brokers=2)
    plan = plan_add(fleet, [10, 11])
    assert set(plan.moves.to_brokers.tolist()) == {10, 11}
    after = plan.disks.utilisation(plan.disks.after_bytes)
    mean = plan.disks.after_bytes.sum() / plan.disks.total_bytes.sum()
    assert after[np.isin(plan.disks.brokers, (10, 11))].min() > mean - 0.02
    with pytest.raises(ImpossiblePlan, match="no disk that takes replicas"):
        plan_add(hand_made(NO_RACKS, {"t": [[1]]}, fenced=[3]), [3])


def test_a_factor_is_raised_into_new_racks_and_not_above_their_number() -> None:
    fleet = hand_made({**TWO_RACKS, 5: "c"}, {"t": [[1, 2], [5]]})
    assert _replicas(plan_factor(fleet, ["t"], 3)) == {"t-0": [1, 2, 5], "t-1": [5, 1, 2]}
    with pytest.raises(ImpossiblePlan, match="too few racks"):
        plan_factor(fleet, ["t"], 4)
    with pytest.raises(DefinitionError, match="2 replicas or more"):
        plan_factor(fleet, ["t"], 1)
    with pytest.raises(NotFound, match="no such topic"):
        plan_factor(fleet, ["x"], 3)
    with pytest.raises(ImpossiblePlan, match="too few brokers"):
        plan_factor(hand_made(NO_RACKS, {"t": [[1]]}), ["t"], 4)


def test_what_could_not_be_read_forbids_the_plans_that_need_it() -> None:
    fact = MissingFact("log directories of broker 3", "no right to describe the cluster", ("disks", "drain"))
    fleet = hand_made(TWO_RACKS, {"t": [[1, 2]]}, missing=[fact])
    for refused in (lambda: plan_disks(fleet), lambda: plan_drain(fleet, [1])):
        with pytest.raises(IncompleteSnapshot, match="no right to describe"):
            refused()
    assert plan_leaders(fleet).kind == PlanKind.LEADERS
    unknown = replace(fleet, missing=(), replicas=replace(fleet.replicas, size_bytes=np.array([-1, -1])))
    with pytest.raises(IncompleteSnapshot, match=r"sizes are not known; found t-0"):
        plan_drain(unknown, [1])


@pytest.mark.parametrize(
    "fleet",
    [
        hand_made(TWO_RACKS, {}),
        hand_made(TWO_RACKS, {"t": [[1, 2]]}, fenced=[1, 2, 3, 4]),
        hand_made(TWO_RACKS, {"t": [[1, 2]]}, offline=[1, 2, 3, 4]),
        hand_made(TWO_RACKS, {"t": [[1, 2]]}, used_bytes=dict.fromkeys(TWO_RACKS, DISK_BYTES)),
        hand_made({1: "a"}, {"t": [[1]]}),
    ],
    ids=["no topics", "nobody serves", "no disk works", "every disk is full", "one broker"],
)
def test_a_fleet_in_which_nothing_can_move_gets_plans_without_moves_or_the_reason(
    fleet: FleetSnapshot,
) -> None:
    for still in (plan_disks(fleet), plan_leaders(fleet), plan_racks(fleet)):
        assert not len(still.moves)
        assert still.why
    if not len(fleet.topics):
        assert not len(plan_drain(fleet, [1]))
        return
    with pytest.raises(ImpossiblePlan, match="no place for a replica of t-0"):
        plan_drain(fleet, [1])
    with pytest.raises(ImpossiblePlan, match="no place for a replica of t-0"):
        plan_remove_disk(fleet, 1, "/d")
