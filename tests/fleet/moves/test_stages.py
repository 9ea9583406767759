"""A mover carries out a plan stage by stage: what left in one makes the room for the next."""

from __future__ import annotations

import pytest
from rtolap.base.errors import DefinitionError
from rtolap.fleet.moves.planned import PlannedMove, check_moves
from rtolap.fleet.moves.settings import MoverSettings
from rtolap.kafka.administration.values import Partition

from tests.support.fleet.mover_runs import MEGABYTE, MoverWorld

FIRST, SECOND = Partition("orders", 0), Partition("orders", 1)
SIZE = 100 * MEGABYTE


def _move(partition: Partition, came: int, goes: int, stage: int) -> PlannedMove:
    return PlannedMove(partition.topic, partition.number, (came,), (goes,), ("/d0",), ("/d0",), SIZE, stage)


EXCHANGE = [_move(SECOND, 2, 5, 0), _move(FIRST, 1, 2, 1), _move(SECOND, 5, 1, 2)]


@pytest.fixture
def world() -> MoverWorld:
    """Brokers 1 and 2 have room for one of the two partitions each."""
    made = MoverWorld(6, MoverSettings(give_up_ms=20_000))
    made.add("orders", 0, [1], SIZE)
    made.add("orders", 1, [2], SIZE)
    for broker in (1, 2):
        made.cluster.brokers[broker].disks["/d0"].total_bytes = SIZE * 3 // 2
    return made


def test_two_full_disks_exchange_their_replicas_by_a_stop_at_a_third(world: MoverWorld) -> None:
    world.submit(EXCHANGE, rate=None)
    order: list[tuple[int, ...]] = []
    for _ in range(1000):
        world.run()
        record = world.record()
        for broker in (1, 2):
            assert world.cluster.used_bytes(broker, "/d0") <= SIZE * 3 // 2
        assert len({EXCHANGE[number].stage for number in record.active}) <= 1
        order += [tuple(sorted(record.active))] if record.active else []
        if record.state == "ended":
            break
    assert world.record().outcomes == "ddd"
    assert list(dict.fromkeys(order)) == [(0,), (1,), (2,)]
    assert world.cluster.partitions[FIRST].replicas == [2]
    assert world.cluster.partitions[SECOND].replicas == [1]
    assert world.leftovers() == []


def test_where_an_earlier_stage_fails_nothing_is_forced_into_a_full_disk(world: MoverWorld) -> None:
    world.cluster.brokers[5].disks["/d0"].offline = True
    world.submit(EXCHANGE, rate=None)
    record = world.run_until_ended()
    assert record.outcomes == "fff"
    assert "not there" in record.reasons[0]
    assert "room" in record.reasons[1]
    assert world.cluster.partitions[FIRST].replicas == [1]
    assert world.cluster.partitions[SECOND].replicas == [2]
    assert world.leftovers() == []


@pytest.mark.parametrize(
    "moves",
    [
        [_move(FIRST, 1, 2, 1), _move(SECOND, 2, 5, 0)],
        [_move(FIRST, 1, 2, 0), _move(FIRST, 3, 1, 1)],
        [_move(FIRST, 1, 2, 0), _move(FIRST, 2, 1, 0)],
    ],
    ids=["no order", "from elsewhere", "twice in a stage"],
)
def test_stages_that_do_not_follow_on_each_other_are_refused(moves: list[PlannedMove]) -> None:
    with pytest.raises(DefinitionError):
        check_moves(moves)
