"""The sliding window against serial batches, the way of Kafka's own tool, on the same cluster."""

import random

from rtolap.fleet.moves.planned import PlannedMove
from rtolap.fleet.moves.settings import MoverSettings
from rtolap.fleet.moves.states import MoveState

from tests.support.fleet.mover_runs import MEGABYTE, MoverWorld

BATCH = 8
STUCK_S = 1_500


def long_tailed_world() -> tuple[MoverWorld, list[PlannedMove]]:
    """Sizes as in a fleet, most small and a few large; every eighth partition is stuck at first."""
    source = random.Random(11)
    world = MoverWorld(12, MoverSettings(give_up_ms=3_600_000))
    moves = []
    for number in range(80):
        before = [source.randrange(1, 5), source.randrange(5, 9)]
        size_bytes = int(min(2_000, source.paretovariate(1.1) * 20)) * MEGABYTE
        partition = world.add("orders", number, before, size_bytes)
        world.cluster.partitions[partition].stuck = number % BATCH == 3
        moves.append(world.planned(partition, [source.randrange(9, 13), before[1]]))
    return world, moves


def test_stuck_partitions_hold_up_batches_and_not_the_window() -> None:
    world, moves = long_tailed_world()
    rate = 50 * MEGABYTE
    serial_s = _in_batches(moves, rate)
    world.submit(moves, rate=rate)
    done_s, seconds = None, 0
    while done_s is None or world.record().active:
        world.run(10)
        seconds += 10
        if seconds == STUCK_S:
            for known in world.cluster.partitions.values():
                known.stuck = False
        if done_s is None and world.record().counts()[MoveState.DONE] >= 70:
            done_s = seconds
    assert set(world.record().outcomes) == {"d"}
    # in batches each waits for its stuck one; the window has done all others before any of them goes on
    assert done_s < STUCK_S
    assert serial_s > 5 * done_s


def _in_batches(moves: list[PlannedMove], rate: int) -> int:
    """The seconds that it takes, each stuck partition going on after its time."""
    world, again = long_tailed_world()
    assert again == moves
    world.administration.alter_configs({})
    seconds = 0
    for start in range(0, len(moves), BATCH):
        batch = moves[start : start + BATCH]
        world.administration.reassign({move.partition: list(move.after) for move in batch})
        begun = seconds
        while any(world.cluster.partitions[move.partition].target for move in batch):
            world.cluster.advance(10)
            seconds += 10
            if seconds - begun == STUCK_S:
                for move in batch:
                    world.cluster.partitions[move.partition].stuck = False
    return seconds
