import time

import numpy as np
from rtolap.fleet.moves.look import BrokerDisk, Look
from rtolap.fleet.moves.planned import PlannedMove
from rtolap.fleet.moves.records import PlanRecord
from rtolap.fleet.moves.settings import MoverSettings
from rtolap.fleet.moves.states import PlanState
from rtolap.fleet.moves.window import PlanMoves, choose

GIGABYTE = 10**9


def move_of(number: int, before: tuple[int, ...], after: tuple[int, ...], size_bytes: int) -> PlannedMove:
    return PlannedMove("t", number, before, after, ("/d",) * len(before), ("",) * len(after), size_bytes)


def look_of(brokers: int, usable_bytes: int = 10**15) -> Look:
    disks = {(b, "/d"): BrokerDisk(usable_bytes, usable_bytes, False, False) for b in range(brokers)}
    return Look(dict.fromkeys(range(brokers)), {}, {}, disks=disks, reporting=frozenset(range(brokers)))


def record_of(moves: list[PlannedMove], rate: int | None = None) -> PlanRecord:
    return PlanRecord("p", "c", "d", PlanState.RUNNING, 0, "ada", "." * len(moves), rate_bytes_per_s=rate)


def chosen(moves: list[PlannedMove], look: Look, rate: int | None = None) -> list[int]:
    return choose(record_of(moves, rate), PlanMoves.of(moves), look, 0, MoverSettings())


def test_under_a_throttle_a_broker_gets_what_keeps_it_busy_and_not_more() -> None:
    moves = [move_of(number, (0, 1), (2, 1), GIGABYTE) for number in range(9)]
    assert len(chosen(moves, look_of(3), rate=10_000_000)) == 1  # one is a hundred seconds of work
    assert len(chosen(moves, look_of(3), rate=50_000_000)) == 2
    assert len(chosen(moves, look_of(3))) == MoverSettings().moves_per_broker


def test_brokers_that_have_nothing_to_do_with_each_other_work_side_by_side() -> None:
    moves = [move_of(pair, (2 * pair,), (2 * pair + 1,), GIGABYTE) for pair in range(20)]
    assert len(chosen(moves, look_of(40), rate=1_000_000)) == 20


def test_disks_are_not_promised_twice() -> None:
    moves = [move_of(number, (0, 1), (2, 1), GIGABYTE) for number in range(4)]
    assert len(chosen(moves, look_of(3, usable_bytes=int(2.5 * GIGABYTE)))) == 2


def test_the_order_of_replicas_alone_needs_no_window() -> None:
    moves = [move_of(number, (0, 1), (1, 0), GIGABYTE) for number in range(50)]
    assert len(chosen(moves, look_of(2), rate=1)) == 50


def test_a_hundred_thousand_moves_are_looked_through_in_a_moment() -> None:
    source = np.random.default_rng(1)
    pairs, sizes = source.integers(0, 200, (100_000, 2)).tolist(), source.integers(1, 10**9, 100_000).tolist()
    moves = [
        move_of(number, (a, 200), (b, 200), size_bytes)
        for number, ((a, b), size_bytes) in enumerate(zip(pairs, sizes, strict=True))
        if a != b
    ]
    plan, record, look = PlanMoves.of(moves), record_of(moves, 10**8), look_of(201)
    begun_s = time.process_time()
    found = choose(record, plan, look, 0, MoverSettings())
    assert time.process_time() - begun_s < 5.0
    assert 200 <= len(found) <= 1000
