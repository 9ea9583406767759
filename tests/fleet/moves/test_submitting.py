import threading

import numpy as np
import pytest
from rtolap.base.errors import DefinitionError, PlanOutdated
from rtolap.fleet.moves.planned import MOVES_MAX, PlannedMove, check_moves
from rtolap.fleet.moves.requests import RequestKind
from rtolap.fleet.moves.settings import MoverSettings
from rtolap.fleet.moves.states import MoveState
from rtolap.fleet.moves.status import plan_status
from rtolap.fleet.moves.submitting import MoverRequests, planned_moves
from rtolap.fleet.moves.window import PlanMoves
from rtolap.fleet.planning.disks import plan_disks
from rtolap.fleet.snapshot.collect import collect_snapshot

from tests.support.fleet.mover_runs import MEGABYTE, TOKEN, MoverWorld
from tests.support.twins.clock import ManualClock


@pytest.fixture
def world() -> MoverWorld:
    made = MoverWorld(6)
    for disk in (disk for broker in made.cluster.brokers.values() for disk in broker.disks.values()):
        disk.total_bytes = 1000 * MEGABYTE
    for number in range(12):
        made.add("orders", number, [1, 3], 60 * MEGABYTE)
    return made


def test_a_plan_of_the_planner_is_submitted_carried_out_and_balances(world: MoverWorld) -> None:
    plan = plan_disks(collect_snapshot(world.administration, ManualClock(5)), runs=1)
    moves = planned_moves(plan)
    assert sum(move.size_bytes * len(move.coming()) for move in moves) == plan.moved_bytes
    requests = MoverRequests(world.fleet_store, world.clock, TOKEN, "ada")
    found: list[str] = []
    asking = threading.Thread(target=lambda: found.append(requests.submit(plan, rate_bytes_per_s=None)))
    asking.start()
    while asking.is_alive():
        world.mover.step()
        asking.join(0.01)
    assert set(world.run_until_ended(found[0]).outcomes) == {"d"}
    after = collect_snapshot(world.administration, world.clock)
    used = np.bincount(after.replicas.log_dirs, after.replicas.size_bytes, minlength=len(after.log_dirs))
    assert used.max() < 0.5 * 12 * 60 * MEGABYTE
    assert world.leftovers() == []


def test_why_a_request_was_refused_comes_back_as_its_error(world: MoverWorld) -> None:
    plan = plan_disks(collect_snapshot(world.administration, ManualClock(5)), runs=1)
    moved = planned_moves(plan)[0].partition
    world.cluster.partitions[moved].replicas = [1, 5]
    requests = MoverRequests(world.fleet_store, world.clock, TOKEN, "ada")
    raised: list[BaseException] = []

    def submit() -> None:
        try:
            requests.submit(plan, rate_bytes_per_s=None)
        except PlanOutdated as error:
            raised.append(error)

    asking = threading.Thread(target=submit)
    asking.start()
    while asking.is_alive():
        world.mover.step()
        asking.join(0.01)
    assert len(raised) == 1


def test_status_tells_what_stalls_and_who_holds_up_the_end(world: MoverWorld) -> None:
    partitions = sorted(world.cluster.partitions)
    moves = [world.planned(partition, [2, 3]) for partition in partitions]
    world.submit(moves, rate=60 * MEGABYTE)
    world.run(2)
    stuck = next(known for known in partitions if world.cluster.partitions[known].target)
    world.cluster.partitions[stuck].stuck = True
    world.run(120)
    status = plan_status(world.record(), PlanMoves.of(moves), world.clock.now_ms(), MoverSettings())
    assert status.tail == (str(stuck),)
    assert [(move.partition, move.stalled, move.left_s) for move in status.active] == [
        (str(stuck), True, None)
    ]
    assert status.counts == {str(MoveState.DONE): 11, str(MoveState.COPYING): 1}
    assert status.moved_bytes == 11 * 60 * MEGABYTE
    assert world.ask(RequestKind.CANCEL)


@pytest.mark.parametrize(
    "moves",
    [
        [],
        [PlannedMove("t", 0, (1,), (2,), ("",), ("",), 1)] * 2,
        [PlannedMove("t", 0, (1,), (2, 2), ("",), ("", ""), 1)],
        [PlannedMove("t", 0, (1, 2), (2,), ("", ""), ("",), 1)],
        [PlannedMove("t", 0, (1,), (2,), ("",), (), 1)],
        [PlannedMove("t", 0, (1,), (2,), ("",), ("",), -1)],
    ],
    ids=["none", "twice", "broker twice", "fewer", "directories", "size"],
)
def test_moves_that_fit_no_cluster_are_refused(moves: list[PlannedMove]) -> None:
    with pytest.raises(DefinitionError):
        check_moves(moves)
    assert MOVES_MAX > 100_000
