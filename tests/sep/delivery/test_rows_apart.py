"""A row that cannot be delivered is set apart with its later edits; others go on; nothing of it is lost."""

from __future__ import annotations

from collections import defaultdict
from random import Random

import msgspec
import numpy as np
import pytest
from rtolap.base.errors import CommitUnknown, Corrupted, Unavailable
from rtolap.kafka.transactions import OutColumns
from rtolap.sep.delivery.delivered_edits import Mask
from rtolap.sep.delivery.delivery import Delivery
from rtolap.sep.delivery.letters import dead_letters, read_letters
from rtolap.sep.delivery.poison import PoisonPolicy
from rtolap.sep.delivery.state import delivery_state
from rtolap.sep.events.edit_batch import EditBatch
from rtolap.sep.listeners.kafka_topic import EncodedEvents, KafkaTopicListener

from tests.sep.delivery.test_delivery import LETTERS, journal_of, run
from tests.support.seeds import so_many
from tests.support.sep.batches import Cell, Event, batch_of, keys_of, puts
from tests.support.sep.delivery_runs import encode
from tests.support.twins.clock import ManualClock
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer
from tests.support.twins.kafka_transactions import MemoryTransactionalProducer

AFTER_S = 300


class World:
    """`bad`: sequence ids that the topic's encoder refuses, until they are taken out."""

    def __init__(self, policy: PoisonPolicy = PoisonPolicy(), rewrite_records: int = 1000) -> None:
        self.broker = MemoryBroker()
        self.broker.create("changes", 1)
        self.broker.create(LETTERS, 1)
        self.clock = ManualClock()
        self.bad: set[int] = set()
        self._policy, self._rewrite_records = policy, rewrite_records
        self.process = self.start()

    def start(self) -> Delivery:
        """A process that takes over."""
        self.process = Delivery(
            KafkaTopicListener("changes", self._encode),
            journal_of(self.broker, self._rewrite_records),
            self.clock,
            policy=self._policy,
            dead_letter_topic=LETTERS,
        )
        return self.process

    def values(self) -> list[str]:
        return [(record.value or b"").decode() for record in self.broker.logs("changes")[0].records]

    def letters(self) -> list[str]:
        return [(record.key or b"").decode() for record in self.broker.logs(LETTERS)[0].records]

    def wait(self, seconds: float) -> None:
        self.clock.advance_ms(int(seconds * 1000))

    def _encode(self, batch: EditBatch, late: Mask) -> EncodedEvents:
        whole = encode(batch, late)
        refused = {at: "no number" for at, key in enumerate(keys_of(batch)) if key[1] in self.bad}
        return EncodedEvents(whole.keys, whole.values, whole.headers, refused)


def edits(*ids_and_rows: tuple[int, bytes]) -> EditBatch:
    return batch_of([Event("a", at, row) for at, row in ids_and_rows])


FIRST = edits((1, b"x"), (2, b"x"), (3, b"y"), (4, b"x"))


def set_apart(world: World) -> None:
    world.bad = {2}
    while run(world.process, FIRST) != [None]:
        world.wait(60)


def test_a_call_with_a_bad_row_is_answered_after_the_stated_time() -> None:
    """Else its region server ships nothing more, of no table."""
    world = World()
    world.bad = {2}
    began_s = world.clock.monotonic_s()
    while run(world.process, FIRST) != [None]:
        assert world.clock.monotonic_s() - began_s < AFTER_S + 120, "the queue stands still"
        world.wait(60)
    assert world.clock.monotonic_s() - began_s >= AFTER_S
    assert world.values() == ["a/1/x", "a/3/y"]
    assert world.letters() == ["t/a/2/x", "t/a/4/x"]
    state = delivery_state(world.process)
    assert (state.rows_apart, state.set_apart, state.failing_events) == (1, 2, 0)
    assert (state.apart[0].row, state.apart[0].reason) == ("x", "no number")


def test_a_row_is_never_set_apart_where_that_is_said() -> None:
    world = World(PoisonPolicy(apart_after_s=0))
    world.bad = {2}
    for _ in range(100):
        assert run(world.process, FIRST) != [None]
        world.wait(60)
    assert world.letters() == []


@pytest.mark.parametrize("rewrite_records", [1000, 3])
def test_later_edits_of_the_row_follow_it_also_of_a_successor(rewrite_records: int) -> None:
    world = World(rewrite_records=rewrite_records)
    set_apart(world)
    for at in range(5, 12):
        world.start()
        assert run(world.process, edits((2 * at, b"x"), (2 * at + 1, b"y"))) == [None]
    assert world.letters() == [f"t/a/{at}/x" for at in (2, 4, 10, 12, 14, 16, 18, 20, 22)]
    assert world.values()[2:] == [f"a/{at}/y" for at in (11, 13, 15, 17, 19, 21, 23)]


def test_what_comes_again_of_a_row_apart_is_no_second_letter() -> None:
    world = World()
    set_apart(world)
    world.start()
    assert run(world.process, FIRST) == [None]
    assert world.letters() == ["t/a/2/x", "t/a/4/x"]


def test_a_mended_row_is_replayed_in_order_and_goes_on_as_others_do() -> None:
    world = World()
    set_apart(world)
    run(world.process, edits((5, b"x")))
    assert world.process.replay().failed == {("t", b"x"): "no number"}
    assert world.values() == ["a/1/x", "a/3/y"]
    world.bad = set()
    replayed = world.process.replay()
    assert (replayed.delivered, replayed.back, replayed.failed) == (3, 1, {})
    assert world.values() == ["a/1/x", "a/3/y", "a/2/x", "a/4/x", "a/5/x"]
    assert run(world.process, edits((6, b"x"))) == [None]
    assert world.values()[-1] == "a/6/x"
    assert world.process.replay().delivered == 0


def test_skipped_letters_are_replayed_when_that_is_requested_once_and_as_late() -> None:
    world = World(PoisonPolicy("skip", 1))
    world.bad = {2}
    assert run(world.process, FIRST) == [None]
    assert world.process.replay().delivered == 0
    world.bad = set()
    assert world.process.replay(skipped=True).delivered == 1
    assert world.process.replay(skipped=True).delivered == 0
    assert world.start().replay(skipped=True).delivered == 0
    last = world.broker.logs("changes")[0].records[-1]
    assert (last.value, last.headers["late"]) == (b"a/2/x", b"1")


class LosesAnswers(MemoryTransactionalProducer):
    """Of the write that a replay makes, whether it was made or not."""

    lose = ""

    def send(self, columns: list[OutColumns], timeout_s: float) -> None:  # type: ignore[override]
        if self.lose == "made":
            super().send(columns, timeout_s)
        if self.lose:
            LosesAnswers.lose = ""
            raise CommitUnknown("the answer is lost")
        super().send(columns, timeout_s)


@pytest.mark.parametrize("lost", ["made", "not made"])
def test_a_replay_whose_answer_is_lost_delivers_each_letter_once(
    lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    set_apart(world)
    world.bad = set()
    monkeypatch.setattr("tests.sep.delivery.test_delivery.MemoryTransactionalProducer", LosesAnswers)
    world.start().recover()
    LosesAnswers.lose = lost
    with pytest.raises(CommitUnknown):
        world.process.replay()
    assert world.process.replay().back == 1
    assert world.values() == ["a/1/x", "a/3/y", "a/2/x", "a/4/x"]


@pytest.mark.seeded
def test_with_bad_values_that_come_and_go_each_row_gets_its_edits_once_and_in_order() -> None:
    for seed in range(so_many(30)):
        random = Random(seed)
        world = World(rewrite_records=random.choice((4, 1000)))
        due: dict[str, list[str]] = defaultdict(list)
        calls: list[EditBatch] = []
        at = 0
        for _ in range(60):
            match random.randrange(6):
                case 0 | 1 | 2:
                    events = []
                    for _ in range(random.randint(1, 6)):
                        at += 1
                        row = random.choice((b"x", b"y", b"z"))
                        events.append(Event("a", at, row))
                        due[row.decode()].append(f"a/{at}/{row.decode()}")
                        if random.random() < 0.1:
                            world.bad.add(at)
                    calls.append(batch_of(events))
                case 3:
                    world.bad -= set(random.sample(sorted(world.bad), len(world.bad) // 2))
                case 4:
                    world.start()
                case _:
                    world.process.recover()
                    world.process.replay()
            calls = _left(world, calls)
            world.wait(random.choice((1, 60, 200)))
        world.bad = set()
        for _ in range(10):
            calls = _left(world, calls)
            world.wait(60)
        world.process.replay()
        assert not calls, seed
        assert not world.process.apart, seed
        found: dict[str, list[str]] = defaultdict(list)
        for value in world.values():
            found[value[-1]].append(value)
        assert found == due, f"seed {seed}"


def _left(world: World, calls: list[EditBatch]) -> list[EditBatch]:
    """Calls that come again: HBase ships later edits of a region behind them."""
    answers = run(world.process, *calls) if calls else []
    return [call for call, error in zip(calls, answers, strict=True) if error is not None]


def test_a_letter_is_whole_whatever_its_size() -> None:
    broker = MemoryBroker()
    broker.create(LETTERS, 1)
    broker.configure(LETTERS, max_message_bytes=str(1 << 20))
    cells = (Cell(b"q", Random(1).randbytes(5 << 20), timestamp_ms=7), Cell(b"r", b"\x00\xff"))
    batch = batch_of([Event("a", 1, b"x"), Event("a", 2, b"y", 5, cells=cells), Event("b", 3, b"z")])
    producer = MemoryTransactionalProducer(broker, "tests")
    producer.begin(1)
    columns = dead_letters(LETTERS, batch, {0: "r", 1: "r", 2: "r"}, apart={1: "some"}, late={1: True})
    assert len(columns.values) > 10
    producer.send([columns], 1)
    read = list(read_letters(MemoryConsumer(broker, LETTERS), 0, len(columns.values)))
    offsets = np.concatenate([each.offsets for each in read]).tolist()
    assert offsets == [0, 1, len(columns.values) - 1]
    assert [name for each in read for name in each.apart] == ["", "some", ""]
    assert [late for each in read for late in each.late] == [False, True, False]
    for at, part in enumerate(part for each in read for part in _each(each.batch)):
        whole = batch.take(np.array([at]))
        assert part.events.to_pylist() == whole.events.to_pylist()
        assert part.cells.to_pylist() == whole.cells.to_pylist()


def test_letters_that_were_deleted_in_part_are_left_out_and_broken_ones_told() -> None:
    broker = MemoryBroker()
    broker.create(LETTERS, 1)
    producer = MemoryTransactionalProducer(broker, "tests")
    producer.begin(1)
    large = dead_letters(LETTERS, puts("a", [1]), {0: "r"}, part_bytes=100)
    producer.send([large, dead_letters(LETTERS, puts("a", [2]), {0: "r"})], 1)
    end = len(large.values) + 1
    [left] = read_letters(MemoryConsumer(broker, LETTERS), 1, end)
    assert left.batch.events["sequence_id"].to_pylist() == [2]
    producer.send([OutColumns(LETTERS, [b"k"], [b"{}"], partition=0)], 1)
    with pytest.raises(Corrupted, match=f"offset {end}"):
        list(read_letters(MemoryConsumer(broker, LETTERS), 0, end + 1))


def test_letters_of_before_are_read() -> None:
    """They have neither parts nor clusters."""
    broker = MemoryBroker()
    broker.create(LETTERS, 1)
    cell = {"family": b"f", "qualifier": b"q", "timestamp_ms": 1, "type": 4, "value": b"v", "tags": b""}
    old = {"table": "t", "region": "a", "sequence_id": 3, "write_time_ms": 4, "row": b"r", "cells": [cell]}
    producer = MemoryTransactionalProducer(broker, "tests")
    producer.begin(1)
    producer.send([OutColumns(LETTERS, [b"k"], [msgspec.json.encode(old)], partition=0)], 1)
    [read] = read_letters(MemoryConsumer(broker, LETTERS), 0, 1)
    assert keys_of(read.batch) == [("a", 3, b"r")]


def test_a_target_that_is_away_sets_nothing_apart() -> None:
    world = World()
    world.process._listener.deliver = _away  # type: ignore[method-assign]
    for _ in range(20):
        assert run(world.process, FIRST) != [None]
        world.wait(60)
    assert world.letters() == []


def _away(group: object) -> None:
    raise Unavailable("the target is away")


def _each(batch: EditBatch) -> list[EditBatch]:
    return [batch.take(np.array([at])) for at in range(batch.num_events)]
