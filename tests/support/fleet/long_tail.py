"""Moves with a long tail, by the mover's sliding window and by serial batches, on the same cluster in memory.

Sizes as in a fleet, most small and a few large; of every eight partitions one is stuck: nothing of it is
copied for `STUCK_S` after its move began.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from rtolap.fleet.moves.planned import PlannedMove
from rtolap.fleet.moves.settings import MoverSettings
from rtolap.kafka.administration.values import Partition

from tests.support.fleet.mover_runs import MEGABYTE, MoverWorld

MOVES = 80
BATCH = 8
STUCK_S = 1_500
RATE_BYTES_PER_S = 50 * MEGABYTE
_LOOK_S = 10


@dataclass(frozen=True)
class LongTail:
    """Seconds until all moves that were never stuck were done, and until all were."""

    others_s: int
    all_s: int


def long_tailed_world(seed: int) -> tuple[MoverWorld, list[PlannedMove]]:
    source = random.Random(seed)
    world = MoverWorld(12, MoverSettings(give_up_ms=3_600_000))
    moves = []
    for number in range(MOVES):
        before = [source.randrange(1, 5), source.randrange(5, 9)]
        size_bytes = int(min(2_000, source.paretovariate(1.1) * 20)) * MEGABYTE
        partition = world.add("orders", number, before, size_bytes)
        world.cluster.partitions[partition].stuck = number % BATCH == 3
        moves.append(world.planned(partition, [source.randrange(9, 13), before[1]]))
    return world, moves


def by_window(seed: int) -> LongTail:
    """Move under a throttle, which batches do without."""
    world, moves = long_tailed_world(seed)
    world.submit(moves, rate=RATE_BYTES_PER_S)
    found = _watched(world, lambda: world.run(_LOOK_S), lambda _: None)
    world.run_until_ended()
    assert set(world.record().outcomes) == {"d"}
    return found


def by_batches(seed: int) -> LongTail:
    """Move as Kafka's own tool does, without a throttle: the next eight when the last eight are done."""
    world, moves = long_tailed_world(seed)
    left = list(moves)

    def next_batch(busy: bool) -> None:
        if not busy:
            batch = {move.partition: list(move.after) for move in left[:BATCH]}
            del left[:BATCH]
            world.administration.reassign(batch)

    return _watched(world, lambda: world.cluster.advance(_LOOK_S), next_batch)


def _watched(world: MoverWorld, pass_time: Callable[[], None], before: Callable[[bool], None]) -> LongTail:
    partitions = world.cluster.partitions
    former = {partition: known.replicas[0] for partition, known in partitions.items()}
    stuck = {partition for partition, known in partitions.items() if known.stuck}
    began_s: dict[Partition, int] = {}
    seconds, others_s = 0, None
    while True:
        before(any(known.target for known in partitions.values()))
        pass_time()
        seconds += _LOOK_S
        for partition in stuck:
            if partitions[partition].target:
                began_s.setdefault(partition, seconds)
            if seconds - began_s.get(partition, seconds) >= STUCK_S:
                partitions[partition].stuck = False
        left = {
            partition
            for partition, known in partitions.items()
            if known.target or known.replicas[0] == former[partition]
        }
        if others_s is None and left <= stuck:
            others_s = seconds
        if not left:
            assert others_s is not None
            return LongTail(others_s, seconds)
