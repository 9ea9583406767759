"""Tests of the way from statements to a source's progress, and the leases of those who make them."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from rtolap.base.errors import NotFound, Unavailable
from rtolap.watermark.chain import Chain
from rtolap.watermark.records.columns import Statements, stated
from rtolap.watermark.records.leases import ProducerLeases
from rtolap.watermark.records.reader import WatermarkReader
from rtolap.watermark.records.statement import Kind, Statement

from tests.support.waiting import until
from tests.support.watermarks.recorded_reports import RecordedReports

ProducerStatement = tuple[int, str, int | None]  # partition, producer, watermark


@cache  # random readings hear the same ones again and again, and nobody changes them
def statements(*told: ProducerStatement, kind: Kind = "control", generation: int = 1) -> Statements:
    texts = [
        Statement(kind, generation, watermark_ms, producer).encode() for _, producer, watermark_ms in told
    ]
    return stated(texts, np.array([partition for partition, _, _ in told], np.int64)).statements


@dataclass
class Registry:
    """The server's list of hosts, as a client sees it."""

    lease_ms: int | None = 3_600_000
    down: bool = False
    asked: list[tuple[str, tuple[str, ...], int | None]] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def __call__(
        self, name: str, level: str, action: str, hosts: Sequence[str], end_ms: int | None = None
    ) -> Registry:
        with self.changed:
            if self.down:
                raise Unavailable("no leader")
            if action == "drain" and ("register", tuple(hosts), None) not in self.asked:
                raise NotFound("no host is named so")
            self.asked.append((action, tuple(hosts), end_ms))
            self.changed.notify_all()
        return self

    def wait_for(self, *asked: tuple[str, tuple[str, ...], int | None]) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.asked[: len(asked)] == list(asked), 10), self.asked


def test_the_smallest_over_producers_and_partitions_is_what_the_server_gets() -> None:
    server = RecordedReports()
    reader = WatermarkReader(server, "results")
    reader.assign({0: 1, 1: 1}, partitions_total=2)
    reader.took(statements((0, "p", 50), (0, "q", 40)))
    assert server.watermark_ms() is None
    assert server.awaited() == {1}, "nobody has spoken there"
    assert reader.waits_for() == {"p": (1,), "q": (1,)}
    reader.took(statements((1, "p", 60)))
    assert server.watermark_ms() == 0, "q has not spoken in 1"
    reader.took(statements((1, "q", 45), (0, "q", 47)))
    assert server.watermark_ms() == 45
    assert not reader.waits_for()


def test_a_producer_that_joins_is_awaited_in_every_partition_that_speaks() -> None:
    server = RecordedReports()
    reader = WatermarkReader(server, "results", producers=["expected"])
    reader.assign({0: 1, 1: 1}, partitions_total=2)
    reader.took(statements((0, "p", 50), (1, "p", 50)))
    assert server.progress == {0: {"p": 50, "expected": 0}, 1: {"p": 50, "expected": 0}}
    reader.took(statements((1, "new", None)))
    assert server.progress[0]["new"] == server.progress[1]["new"] == 0


def test_only_what_was_said_anew_is_reported() -> None:
    server = RecordedReports()
    reader = WatermarkReader(server, "results")
    reader.assign({0: 1}, partitions_total=1)
    reader.took(statements((0, "gone", 50), (0, "p", 50)))
    server.calls.clear()
    reader.took(statements((0, "p", 60)))
    assert [call.hosts for call in server.calls] == [("p",)], "one that has left is not brought back"


def test_a_new_generation_of_the_reader_knows_nothing_and_of_what_it_gave_away_says_nothing() -> None:
    server = RecordedReports()
    reader = WatermarkReader(server, "results")
    reader.assign({0: 1, 1: 1}, partitions_total=2)
    reader.took(statements((0, "p", 50), (1, "p", 50)))
    reader.assign({1: 2}, partitions_total=3)
    assert reader.waits_for() == {"p": (1,)}
    server.calls.clear()
    reader.took(statements((0, "p", 70), (1, "p", 60)))
    assert server.calls == [("results", 1, 2, ("p",), 3)]


def test_a_predecessor_that_is_still_alive_is_not_believed() -> None:
    server = RecordedReports()
    reader = WatermarkReader(server, "results")
    reader.assign({0: 1}, partitions_total=1)
    reader.took(statements((0, "p", 50), generation=2))
    reader.took(statements((0, "p", 999), generation=1))
    assert server.watermark_ms() == 50


def read_at_random(seed: int) -> None:
    chance = random.Random(seed)
    server, names = RecordedReports(), ["p", "q", "r"]
    readers = [WatermarkReader(server, "results", producers=names) for _ in range(2)]
    owner = {partition: chance.randrange(2) for partition in range(3)}
    generations = dict.fromkeys(range(3), 0)
    everything = Chain(range(3), names)

    def assign() -> None:
        for at, reader in enumerate(readers):
            mine = {partition: generations[partition] for partition in owner if owner[partition] == at}
            reader.assign(mine, partitions_total=3)

    assign()
    for step in range(60):
        if chance.random() < 0.1:
            moved = chance.randrange(3)
            owner[moved], generations[moved] = chance.randrange(2), generations[moved] + 1
            assign()
        partition, name = chance.randrange(3), chance.choice(names)
        told = statements((partition, name, step + chance.randrange(20)))
        everything.observe(name, partition, int(told.watermarks_ms[0]), 1)
        readers[owner[partition]].took(told)
        assert (server.watermark_ms() or 0) <= (everything.watermark_ms() or 0), (seed, step)
    for partition in range(3):
        readers[owner[partition]].took(statements(*((partition, name, 100) for name in names)))
    assert server.watermark_ms() == 100, seed


def test_random_readings_never_tell_more_than_the_chain_over_all_partitions() -> None:
    for seed in range(300):
        read_at_random(seed)


def test_producers_are_registered_when_they_are_heard_and_drained_when_they_end() -> None:
    registry = Registry()
    leases = ProducerLeases(registry, "down", "results")
    reader = WatermarkReader(RecordedReports(), "results", leases=leases)
    reader.assign({0: 1, 1: 1}, partitions_total=2)
    register, drain = ("register", ("p",), None), ("drain", ("p",), 60)
    reader.took(statements((0, "p", 50)))
    registry.wait_for(register)
    reader.took(statements((0, "p", 60), kind="end"))
    reader.took(statements((1, "p", 60), kind="end"))  # now everywhere
    registry.wait_for(register, drain)
    reader.took(statements((0, "p", 70), generation=2))
    registry.wait_for(register, drain, register)
    leases.close()
    assert len(registry.asked) == 3


def test_leases_are_renewed_within_their_time_while_somebody_is_heard() -> None:
    registry = Registry(lease_ms=90)
    leases = ProducerLeases(registry, "down", "results")

    def heard_and_asked() -> bool:
        leases.heard(["p"])
        return len(registry.asked) >= 4

    until(heard_and_asked)
    leases.close()
    assert set(registry.asked) == {("register", ("p",), None)}


def test_a_coordinator_that_is_away_is_a_problem_that_passes() -> None:
    registry = Registry(down=True)
    leases = ProducerLeases(registry, "down", "results")
    leases.heard(["p"])
    until(lambda: leases.problem is not None)
    registry.down = False
    registry.wait_for(("register", ("p",), None))
    until(lambda: leases.problem is None)
    leases.close()


def test_the_end_of_one_that_has_left_already_is_no_trouble() -> None:
    registry = Registry()
    leases = ProducerLeases(registry, "down", "results")
    leases.ended({"stranger": None})
    leases.heard(["p"])
    registry.wait_for(("register", ("p",), None))
    leases.close()
    assert leases.problem is None
