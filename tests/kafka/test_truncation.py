"""Logs that were cut and grew again, compared with what was read of them, and with a plain recount."""

from __future__ import annotations

import random

import pytest
from rtolap.base.errors import Unavailable
from rtolap.kafka.interfaces import EpochEnd, LogTruncated, OutRecord
from rtolap.kafka.truncation import TruncationCheck
from rtolap.model.leader_epochs import EpochRange, LeaderEpochs, continued, of_marks

from tests.support.seeds import so_many
from tests.support.twins.kafka_broker import MemoryBroker
from tests.support.twins.kafka_consumer import MemoryConsumer


class Reader:
    """Reads a topic of two partitions, and knows each record that it has read."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.consumer = MemoryConsumer(broker, "t")
        self.consumer.assign({0: 0, 1: 0})
        self.epochs: dict[int, LeaderEpochs] = {}
        self.read: dict[int, dict[int, bytes | None]] = {0: {}, 1: {}}
        self.check = TruncationCheck("t", self.consumer.epoch_ends, action="look")

    def poll(self, records: int) -> None:
        batch = self.consumer.poll(records, 0)
        self.epochs = continued(self.epochs, batch.epochs)
        for partition, offset, value in zip(batch.partitions, batch.offsets, batch.values, strict=True):
            self.read[int(partition)][int(offset)] = value

    def found(self) -> dict[int, int]:
        try:
            self.check.check(self.epochs)
        except LogTruncated as error:
            return {cut.partition: cut.diverges for cut in error.cuts}
        return {}


def recounted(broker: MemoryBroker, reader: Reader) -> dict[int, int]:
    """Partition → the first offset whose record was read and is another one, or none, by now."""
    diverging: dict[int, int] = {}
    for partition, log in enumerate(broker.logs("t")):
        there = {at: record.value for at, record in zip(log.offsets, log.records, strict=True)}
        wrong = [at for at, value in reader.read[partition].items() if there.get(at, b"none") != value]
        if wrong:
            diverging[partition] = min(wrong)
    return diverging


@pytest.mark.parametrize("seed", range(so_many(200)))
def test_what_is_found_is_what_a_recount_finds(seed: int) -> None:
    rng = random.Random(seed)
    broker = MemoryBroker()
    broker.create("t", 2)
    reader, number = Reader(broker), 0
    for step in range(60):
        partition = rng.randrange(2)
        log = broker.logs("t")[partition]
        match rng.choice(("append", "append", "append", "poll", "poll", "elect", "cut", "skip", "check")):
            case "append":
                for _ in range(rng.randrange(1, 6)):
                    number += 1
                    broker.append("t", OutRecord(b"%d" % number, partition=partition))
            case "poll":
                if all(
                    reader.consumer.position()[p] <= known.end for p, known in enumerate(broker.logs("t"))
                ):
                    reader.poll(rng.randrange(1, 8))
            case "elect":
                broker.elect("t", partition)
            case "skip":
                broker.skip("t", partition, 1)
            case "cut":
                if rng.random() < 0.4:
                    broker.cut("t", partition, rng.randrange(max(0, log.end - 8), log.end + 1))
            case "check":
                expected, found = recounted(broker, reader), reader.found()
                assert found.keys() == expected.keys(), f"seed {seed}, step {step}: {found}, not {expected}"
                for cut, at in found.items():
                    below = [offset for offset in reader.read[cut] if offset < expected[cut]]
                    assert max(below, default=-1) < at <= expected[cut], f"seed {seed}, step {step}"
                if found:
                    return


def test_an_election_that_loses_nothing_is_no_cut() -> None:
    broker = MemoryBroker()
    broker.create("t", 2)
    reader = Reader(broker)
    for partition in (0, 1):
        broker.append("t", OutRecord(b"a", partition=partition))
    reader.poll(10)
    broker.elect("t", 0)
    assert reader.found() == {}
    broker.append("t", OutRecord(b"b", partition=0))
    reader.poll(10)
    assert reader.epochs[0].ranges == (EpochRange(0, 0, 1), EpochRange(1, 1, 2))
    assert reader.found() == {}


def test_a_leader_that_knows_less_than_was_read_is_asked_again() -> None:
    broker = MemoryBroker()
    broker.create("t", 2)
    reader = Reader(broker)
    with pytest.raises(Unavailable):
        reader.check.check({0: LeaderEpochs((EpochRange(7, 0, 3),))})


def test_epochs_that_were_compared_are_not_asked_for_again() -> None:
    asked: list[dict[int, int]] = []

    def ask(epochs: object, timeout_s: float) -> dict[int, EpochEnd]:
        asked.append(dict(epochs))  # type: ignore[call-overload]
        return {p: EpochEnd(epoch, 100) for p, epoch in asked[-1].items()}

    check = TruncationCheck("t", ask, action="look")
    known = LeaderEpochs((EpochRange(1, 0, 10), EpochRange(2, 10, 20), EpochRange(3, 20, 30)))
    check.check({0: known})
    check.check({0: known})
    assert asked == [{0: 3}, {0: 2}, {0: 1}, {0: 3}]


def test_all_partitions_that_were_cut_are_named() -> None:
    broker = MemoryBroker()
    broker.create("t", 2)
    reader = Reader(broker)
    for number in range(10):
        broker.append("t", OutRecord(b"%d" % number, partition=number % 2))
    reader.poll(10)
    broker.cut("t", 0, 3)
    broker.cut("t", 1, 1)
    for number in range(20):
        broker.append("t", OutRecord(b"other %d" % number, partition=number % 2))
    with pytest.raises(LogTruncated) as found:
        reader.check.check(reader.epochs)
    assert [tuple(cut) for cut in found.value.cuts] == [(0, 5, 3), (1, 5, 1)]
    assert "partition 0 diverges at offset 3, before 5" in str(found.value)


def test_marks_of_some_offsets_claim_no_more_than_these() -> None:
    assert of_marks([(10, 1), (30, 3), (20, 1)]) == LeaderEpochs(
        (EpochRange(1, 9, 20), EpochRange(3, 29, 30))
    )
    assert of_marks([(0, 1)]) is None


def test_the_epoch_below_an_offset_is_that_of_the_last_record_before_it() -> None:
    known = LeaderEpochs((EpochRange(1, 5, 10), EpochRange(4, 12, 20)))
    assert [known.epoch_below(offset) for offset in (5, 6, 12, 13, 99)] == [None, 1, 1, 4, 4]
    assert known.cut(11) == LeaderEpochs((EpochRange(1, 5, 10),))
    assert known.cut(15) == LeaderEpochs((EpochRange(1, 5, 10), EpochRange(4, 12, 15)))
    assert known.cut(5) is None
