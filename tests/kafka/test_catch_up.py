"""Partitions that are far behind are read apart: which ones, and that nothing is lost or repeated by it."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from rtolap.kafka.catch_up import CatchUpBounds, CatchUpConsumer, LaneChooser
from rtolap.kafka.interfaces import BATCH_BYTES_MAX, OffsetsGone, OutRecord

from tests.support.seeds import so_many
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer

_BOUNDS = CatchUpBounds(behind_records=100, near_records=10, looks=2, look_every_s=1.0)


def test_a_partition_is_read_apart_after_some_looks_and_until_it_is_near() -> None:
    chooser = LaneChooser(_BOUNDS)
    assert chooser.choose({0: 0, 1: 101}) == set()
    assert chooser.choose({0: 0, 1: 101}) == {1}
    assert chooser.choose({0: 0, 1: 11}) == {1}
    assert chooser.choose({0: 0, 1: 10}) == set()
    assert chooser.choose({0: 0, 1: 100}) == set()


def test_a_short_burst_moves_nobody() -> None:
    chooser = LaneChooser(_BOUNDS)
    for lag in (101, 50, 101, 50):
        assert chooser.choose({0: 0, 1: lag}) == set()


def test_where_all_are_behind_none_is_read_apart() -> None:
    chooser = LaneChooser(_BOUNDS)
    for _ in range(3):
        assert chooser.choose({0: 500, 1: 101}) == set()
    assert chooser.choose({0: 500, 1: 100}) == {0}
    assert chooser.choose({0: 500, 1: 101}) == {0}
    assert chooser.choose({0: 500, 1: 101}) == set()


def test_a_paused_partition_stays_where_it_is() -> None:
    chooser = LaneChooser(_BOUNDS)
    for _ in range(3):
        assert chooser.choose({0: 0, 1: 500}, fixed=[1]) == set()
    chooser.choose({0: 0, 1: 500})
    assert chooser.choose({0: 0, 1: 500}) == {1}
    assert chooser.choose({0: 0, 1: 0}, fixed=[1]) == {1}


class _World:
    """A topic of four partitions, and a clock that the test sets. opened: the consumers; the last is that of
    the backlog, once there is one."""

    def __init__(self, bounds: CatchUpBounds, partitions: int = 4) -> None:
        self.broker = MemoryBroker()
        self.broker.create("t", partitions)
        self.now_s = 0.0
        self.opened: list[MemoryConsumer] = []
        self.consumer = CatchUpConsumer(self._open, bounds, now_s=lambda: self.now_s)

    def _open(self) -> MemoryConsumer:
        self.opened.append(MemoryConsumer(self.broker, "t"))
        return self.opened[-1]

    def produce(self, partition: int, count: int, value: bytes = b"x") -> None:
        for _ in range(count):
            self.broker.append("t", OutRecord(value, partition=partition))

    def poll(self, records_max: int = 40, bytes_max: int = BATCH_BYTES_MAX) -> dict[int, list[int]]:
        """Partition → offsets, of one poll, a second later than the last."""
        self.now_s += 1.0
        batch = self.consumer.poll(records_max, 0.0, bytes_max=bytes_max)
        found: dict[int, list[int]] = {}
        for partition, offset in zip(batch.partitions.tolist(), batch.offsets.tolist(), strict=True):
            found.setdefault(partition, []).append(offset)
        return found


def test_a_live_partition_does_not_wait_for_a_backlog() -> None:
    world = _World(_BOUNDS)
    world.produce(0, 1000)
    world.consumer.assign({0: 0, 3: 0})
    for _ in range(2):
        world.poll()
    assert world.consumer.apart == {0}
    world.produce(3, 5)
    found = world.poll()
    assert found[3] == [0, 1, 2, 3, 4]
    assert found[0] == list(range(found[0][0], found[0][0] + 10)), "a quarter of a batch is the backlog's"


def test_so_many_catch_up_at_a_time_and_each_has_its_turn() -> None:
    bounds = CatchUpBounds(
        behind_records=100, near_records=10, looks=1, look_every_s=1.0, partitions_max=1, turn_s=3.0
    )
    world = _World(bounds)
    for partition in (0, 1, 2):
        world.produce(partition, 1000)
    world.consumer.assign(dict.fromkeys(range(4), 0))
    turns = [sorted(world.poll()) for _ in range(13)][1:]
    assert all(len(turn) == 1 for turn in turns)
    assert {partition for turn in turns for partition in turn} == {0, 1, 2}


@pytest.mark.parametrize("live", [0, 1000])
def test_a_backlog_takes_no_more_bytes_of_a_batch_than_its_share(live: int) -> None:
    """Whether or not others take theirs: what one batch may hold is bounded, and how long it takes."""
    world = _World(_BOUNDS)
    world.produce(0, 1000, b"x" * 100)
    world.consumer.assign({0: 0, 3: 0})
    for _ in range(2):
        world.poll()
    assert world.consumer.apart == {0}
    world.produce(3, live, b"x" * 50)
    found = world.poll(records_max=1000, bytes_max=4000)
    assert len(found[0]) * 100 == 1000
    assert len(found.get(3, ())) * 50 == (3000 if live else 0)


@pytest.mark.parametrize(("behind", "at_a_time"), [(3, 1), (3, 2), (5, 2), (5, 3)])
def test_no_more_partitions_catch_up_at_a_time_than_may_and_turns_are_fair(
    behind: int, at_a_time: int
) -> None:
    bounds = CatchUpBounds(
        behind_records=100, near_records=10, looks=1, look_every_s=1.0, partitions_max=at_a_time, turn_s=2.0
    )
    world = _World(bounds, partitions=behind + 1)
    for partition in range(behind):
        world.produce(partition, 1000)
    world.consumer.assign(dict.fromkeys(range(behind + 1), 0))
    read: Counter[int] = Counter()
    for _ in range(2 * behind):
        world.poll()
        lane = world.opened[-1].position()
        assert len(lane) == at_a_time
        read.update(lane.keys())
    assert read == dict.fromkeys(range(behind), 2 * at_a_time)


def test_live_records_are_given_out_before_an_error_of_the_backlog_and_it_stays() -> None:
    world = _World(_BOUNDS)
    world.produce(0, 1000)
    world.consumer.assign({0: 0, 3: 0})
    for _ in range(3):
        world.poll()
    log = world.broker.logs("t")[0]
    log.start = 900
    world.produce(3, 2)
    assert world.poll() == {3: [0, 1]}
    for _ in range(2):
        with pytest.raises(OffsetsGone):
            world.poll()
    world.consumer.assign({0: 900, 3: 2})
    assert world.poll()[0][0] == 900


def test_what_was_apart_is_read_with_the_others_after_an_assignment() -> None:
    world = _World(_BOUNDS)
    world.produce(0, 1000)
    world.consumer.assign({0: 0, 3: 0})
    for _ in range(3):
        world.poll()
    world.consumer.assign({0: 995, 3: 0})
    assert world.consumer.apart == set()
    assert world.poll() == {0: [995, 996, 997, 998, 999]}


def _run(seed: int) -> bool:
    """A life of random sends, polls, pauses and assignments, checked throughout. True: some were apart."""
    rng = random.Random(seed)
    bounds = CatchUpBounds(
        behind_records=rng.choice((0, 5, 40)),
        near_records=rng.choice((0, 3)),
        looks=rng.randint(1, 3),
        look_every_s=rng.choice((0.0, 1.0, 3.0)),
        share=rng.choice((0.05, 0.5)),
        partitions_max=rng.randint(1, 3),
        turn_s=rng.choice((0.0, 2.0)),
    )
    world = _World(bounds)
    next_offset = dict.fromkeys(range(4), 0)
    world.consumer.assign(next_offset)
    paused: set[int] = set()
    seen_apart = False

    def read() -> None:
        for partition, offsets in world.poll(rng.randint(1, 30)).items():
            assert partition not in paused
            first = next_offset[partition]
            assert offsets == list(range(first, first + len(offsets)))
            next_offset[partition] += len(offsets)
        assert world.consumer.position() == next_offset

    for _ in range(150):
        partition = rng.randrange(4)
        match rng.randrange(9):
            case 0:
                world.produce(partition, rng.randint(1, 60))
            case 1:
                world.consumer.pause([partition])
                paused.add(partition)
            case 2:
                world.consumer.resume()
                paused.clear()
            case 3 if partition not in paused:
                world.consumer.remove_partitions([partition])
                world.consumer.add_partitions({partition: next_offset[partition]})
            case 4 if rng.random() < 0.1:
                world.consumer.assign(next_offset)
            case _:
                read()
        seen_apart |= bool(world.consumer.apart)
    world.consumer.resume()
    paused.clear()
    ends = {number: log.end for number, log in enumerate(world.broker.logs("t"))}
    for _ in range(2000):
        if next_offset == ends:
            break
        read()
    assert next_offset == ends
    return seen_apart


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(60)))
def test_every_record_comes_once_and_in_order_whatever_is_done_meanwhile(seed: int) -> None:
    _run(seed)


def test_the_runs_read_partitions_apart() -> None:
    assert sum(_run(seed) for seed in range(20)) >= 10
