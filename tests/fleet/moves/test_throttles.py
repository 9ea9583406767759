"""Throttles that are changed while moves run, and moves that a throttle keeps from their end."""

import pytest
from rtolap.fleet.moves.planned import PlannedMove
from rtolap.fleet.moves.requests import RequestKind
from rtolap.fleet.moves.settings import MoverSettings
from rtolap.fleet.moves.states import PlanEvent, PlanState
from rtolap.fleet.moves.status import PlanStatus, plan_status
from rtolap.fleet.moves.throttles import plan_throttle, remove_throttle, set_throttle
from rtolap.fleet.moves.window import PlanMoves
from rtolap.kafka.administration.values import (
    ALL_BROKERS,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    ConfigKind,
    ConfigResource,
    Replica,
)

from tests.support.fleet.mover_runs import MEGABYTE, MoverWorld

ORDERS = ConfigResource(ConfigKind.TOPIC, "orders")
LISTED = {LEADER_REPLICAS: "0:1,0:3", FOLLOWER_REPLICAS: "0:2"}


@pytest.fixture
def world() -> MoverWorld:
    return MoverWorld()


def moved_to_broker_2(world: MoverWorld, size_bytes: int = 400 * MEGABYTE) -> PlannedMove:
    return world.planned(world.add("orders", 0, [1, 3], size_bytes), [2, 3])


def throttle(world: MoverWorld, rate: int | None) -> str:
    return world.ask(RequestKind.THROTTLE, rate_bytes_per_s=rate, reason="quiet hours")


def status_of(world: MoverWorld, move: PlannedMove) -> PlanStatus:
    return plan_status(world.record(), PlanMoves.of([move]), world.clock.now_ms(), world.settings)


def test_a_throttle_is_changed_while_moves_run_and_goes_with_the_plan(world: MoverWorld) -> None:
    move = moved_to_broker_2(world)
    world.cluster.configs[ALL_BROKERS] = {LEADER_RATE: "777"}
    world.submit([move], rate=MEGABYTE)
    world.run(3)
    before = world.cluster.replicas[Replica(move.partition, 2)].size_bytes
    request = throttle(world, 20 * MEGABYTE)
    world.run(2)
    assert world.answer(request) == ""
    assert world.cluster.configs[ALL_BROKERS][LEADER_RATE] == str(20 * MEGABYTE)
    assert world.cluster.configs[ORDERS] == LISTED
    assert world.cluster.replicas[Replica(move.partition, 2)].size_bytes >= before + 40 * MEGABYTE
    record = world.run_until_ended()
    assert record.outcomes == "d"
    assert [entry.note for entry in record.history if entry.event is PlanEvent.THROTTLE] == [
        "ada: quiet hours"
    ]
    assert world.cluster.configs[ALL_BROKERS] == {LEADER_RATE: "777"}
    assert not world.cluster.configs[ORDERS]


def test_only_replicas_of_moves_under_way_are_listed() -> None:
    world = MoverWorld(settings=MoverSettings(moves_per_broker=2))
    moves = [world.planned(world.add("orders", number, [1, 3], 20 * MEGABYTE), [2, 3]) for number in range(6)]
    seen: list[set[int]] = []
    world.submit(moves, rate=10 * MEGABYTE)
    while world.run() or world.record().state is not PlanState.ENDED:
        values = world.cluster.configs.get(ORDERS, {})
        listed = {int(entry.split(":")[0]) for entry in values.get(FOLLOWER_REPLICAS, "").split(",") if entry}
        leaders = [f"{number}:{broker}" for number in sorted(listed) for broker in (1, 3)]
        assert values.get(LEADER_REPLICAS, "") == ",".join(leaders)
        assert listed <= {number for number in range(6) if world.record().outcomes[number] != "."}
        if listed not in seen:
            seen.append(listed)
    assert max(map(len, seen)) == 2
    assert set().union(*seen) == set(range(6))
    assert world.leftovers() == []


def test_replicas_that_others_list_while_moves_run_stay_listed(world: MoverWorld) -> None:
    moves = [moved_to_broker_2(world, 20 * MEGABYTE)]
    moves.append(world.planned(world.add("orders", 1, [1, 3], 40 * MEGABYTE), [2, 3]))
    world.submit(moves, rate=MEGABYTE)
    world.run(2)
    world.cluster.configs[ORDERS][LEADER_REPLICAS] += ",9:4"
    throttle(world, 20 * MEGABYTE)
    assert world.run_until_ended().outcomes == "dd"
    assert world.leftovers() == [f"{ORDERS}: {{'{LEADER_REPLICAS}': '9:4'}}"]


def test_what_was_listed_last_is_removed_although_the_broker_that_tells_has_not_learnt_of_it(
    world: MoverWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves = [moved_to_broker_2(world)]
    planned = plan_throttle(world.administration, moves, MEGABYTE)
    in_force = set_throttle(world.administration, moves, planned, (0,))
    assert world.cluster.configs[ORDERS] == LISTED
    rates = {ALL_BROKERS: dict(world.cluster.configs[ALL_BROKERS])}
    monkeypatch.setattr(world.administration, "configs", lambda resources, names: rates)
    remove_throttle(world.administration, moves, in_force)
    assert world.leftovers() == []


def test_a_throttle_is_lifted_and_set_again(world: MoverWorld) -> None:
    move = moved_to_broker_2(world, 4_000 * MEGABYTE)
    world.cluster.configs[ORDERS] = {LEADER_REPLICAS: "7:1"}
    world.submit([move], rate=MEGABYTE)
    world.run(2)
    throttle(world, None)
    world.run(2)
    assert not world.cluster.configs[ALL_BROKERS]
    assert world.cluster.configs[ORDERS] == {LEADER_REPLICAS: "7:1"}
    throttle(world, 2 * MEGABYTE)
    world.run(2)
    assert world.cluster.configs[ORDERS][LEADER_REPLICAS] == "7:1,0:1,0:3"
    throttle(world, None)
    assert world.run_until_ended().outcomes == "d"
    assert world.leftovers() == [f"{ORDERS}: {{'{LEADER_REPLICAS}': '7:1'}}"]


def test_a_plan_without_a_throttle_gets_one(world: MoverWorld) -> None:
    move = moved_to_broker_2(world)
    world.submit([move], rate=None)
    world.run(1)
    throttle(world, MEGABYTE)
    world.run(2)
    assert world.cluster.configs[ALL_BROKERS][LEADER_RATE] == str(MEGABYTE)
    assert world.cluster.configs[ORDERS] == LISTED
    throttle(world, 100 * MEGABYTE)
    assert world.run_until_ended().outcomes == "d"
    assert world.leftovers() == []


def test_a_cancelled_plan_keeps_the_throttle_at_which_copies_wait(world: MoverWorld) -> None:
    move = moved_to_broker_2(world)
    world.submit([move], rate=MEGABYTE)
    world.run(3)
    throttle(world, 3 * MEGABYTE)
    world.ask(RequestKind.CANCEL)
    late = throttle(world, 9 * MEGABYTE)
    assert world.run_until_ended().outcomes == "c"
    assert world.answer(late) == "illegal_transition"
    assert world.leftovers() == []


def test_a_throttle_without_a_plan_or_that_lets_nothing_pass_is_refused(world: MoverWorld) -> None:
    idle = throttle(world, MEGABYTE)
    world.run(1)
    assert world.answer(idle) == "not_found"
    world.submit([moved_to_broker_2(world)], rate=MEGABYTE)
    nothing = throttle(world, 0)
    world.run(1)
    assert world.answer(nothing) == "definition"
    assert world.record().rate_bytes_per_s == MEGABYTE


def test_a_throttle_below_what_is_written_is_named_with_the_one_that_would_do(world: MoverWorld) -> None:
    move = moved_to_broker_2(world, 60 * MEGABYTE)
    world.cluster.partitions[move.partition].written_bytes_per_s = 3 * MEGABYTE
    world.submit([move], rate=3 * MEGABYTE)
    world.run(200)
    status = status_of(world, move)
    assert [(known.behind, known.stalled, known.left_s) for known in status.active] == [(True, False, None)]
    assert status.active[0].written_bytes_per_s == 3 * MEGABYTE
    assert status.expected_end_ms is None
    # the leader sends each record to a replica in sync and to the new one
    assert status.throttle_needed_bytes_per_s == 2 * 2 * 3 * MEGABYTE
    world.run(200)
    assert world.record().outcomes == "a"
    throttle(world, status.throttle_needed_bytes_per_s)
    world.run(70)
    assert world.record().outcomes == "d"


def test_a_copy_that_gains_is_not_behind_and_its_end_is_told(world: MoverWorld) -> None:
    move = moved_to_broker_2(world, 600 * MEGABYTE)
    world.cluster.partitions[move.partition].written_bytes_per_s = MEGABYTE
    world.submit([move], rate=3 * MEGABYTE)
    world.run(60)
    status = status_of(world, move)
    assert not status.active[0].behind
    assert status.throttle_needed_bytes_per_s is None
    left_s = ((status.expected_end_ms or 0) - world.clock.now_ms()) / 1000
    assert left_s == pytest.approx(480 / 3, rel=0.1)


def test_a_throttle_that_replicas_in_sync_use_up_is_named_although_nothing_is_copied(
    world: MoverWorld,
) -> None:
    move = moved_to_broker_2(world)
    known = world.cluster.partitions[move.partition]
    known.written_bytes_per_s, known.stuck = 3 * MEGABYTE, True  # as real brokers do then
    world.submit([move], rate=MEGABYTE)
    world.run(70)
    status = status_of(world, move)
    assert (status.active[0].copied_bytes, status.active[0].behind) == (0, True)
    assert status.throttle_needed_bytes_per_s == 12 * MEGABYTE


def test_a_copy_that_stands_still_stalls_although_its_partition_is_written_to() -> None:
    world = MoverWorld(settings=MoverSettings(stall_ms=10_000, give_up_ms=60_000))
    move = moved_to_broker_2(world)
    known = world.cluster.partitions[move.partition]
    known.written_bytes_per_s = MEGABYTE
    world.submit([move])
    world.run(3)
    known.stuck = True
    world.run(20)
    assert status_of(world, move).active[0].stalled
    record = world.run_until_ended()
    assert record.outcomes == "f"
    assert record.state is PlanState.ENDED
    assert known.replicas == [1, 3]
