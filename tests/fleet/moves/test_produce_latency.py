"""Brokers whose writes take too long get fewer moves, and get them back."""

from __future__ import annotations

import random

import pytest
from rtolap.cli.fleet.moves_text import print_status, status_document
from rtolap.fleet.moves.metrics import MoverMetrics
from rtolap.fleet.moves.mover import Mover
from rtolap.fleet.moves.planned import PlannedMove
from rtolap.fleet.moves.produce_latency import (
    ProduceLatency,
    ProduceReading,
    ProduceWindow,
    after_reading,
)
from rtolap.fleet.moves.settings import MoverSettings
from rtolap.fleet.moves.standing import PlanStanding
from rtolap.fleet.moves.states import PlanState
from rtolap.fleet.moves.status import PlanStatus, plan_status
from rtolap.fleet.moves.window import PlanMoves

from tests.support.fleet.mover_runs import FENCE, MEGABYTE, TOKEN, MoverWorld
from tests.support.scrape import Scrape

LIMIT_MS = 300.0
MOVES_MAX = 5
SETTINGS = MoverSettings(produce_p99_ms_max=LIMIT_MS, give_up_ms=60_000)

SERVED = PlanStanding("mover", "", 1_700_000_000_000, 0, (), ())


class Told:
    """Readings that the test sets, but for the first, which tells nothing yet."""

    def __init__(self) -> None:
        self.p99_ms: dict[int, float | None] = dict.fromkeys(range(1, 5), 5.0)
        self.read_at_ms: list[int] = []

    def read(self, now_ms: int) -> ProduceReading | None:
        self.read_at_ms.append(now_ms)
        return None if len(self.read_at_ms) == 1 else ProduceReading(dict(self.p99_ms))


def read_once(
    latency: ProduceLatency, p99_ms: dict[int, float | None], going: dict[int, int]
) -> ProduceLatency:
    return after_reading(latency, ProduceReading(p99_ms), frozenset({1, 2}), going, MOVES_MAX)


def test_a_broker_has_half_as_many_moves_at_each_reading_above_the_limit() -> None:
    latency, allowed = ProduceLatency(LIMIT_MS), []
    for going in (5, 5, 2, 1, 0):  # what is under way goes on
        latency = read_once(latency, {1: 412.0, 2: 300.0}, {1: going, 2: 5})
        allowed.append(latency.moves_max(1, MOVES_MAX))
        assert latency.moves_max(2, MOVES_MAX) == MOVES_MAX
    assert allowed == [2, 1, 0, 0, 0]


def test_a_broker_gets_one_move_more_at_each_reading_below_the_limit() -> None:
    latency, allowed = ProduceLatency(LIMIT_MS, {1: ProduceWindow(0, 412.0)}), []
    for _ in range(7):
        latency = read_once(latency, {1: 100.0, 2: 100.0}, {})
        allowed.append(latency.moves_max(1, MOVES_MAX))
    assert allowed == [1, 2, 3, 4, 5, 5, 5]
    assert latency.holding_back(MOVES_MAX) == {}


def test_a_broker_that_was_never_read_is_not_held_back_and_is_named() -> None:
    latency = read_once(ProduceLatency(LIMIT_MS), {1: 100.0}, {2: 5})
    assert latency.unread == (2,)
    assert latency.moves_max(2, MOVES_MAX) == MOVES_MAX


@pytest.mark.parametrize("reading", [{}, {1: None}], ids=["silent", "too few writes"])
def test_a_broker_of_which_nothing_is_told_keeps_what_it_has_and_may_have_one_move(
    reading: dict[int, float | None],
) -> None:
    windows = {1: ProduceWindow(0, 412.0), 2: ProduceWindow(2, 412.0)}
    latency = read_once(ProduceLatency(LIMIT_MS, windows), reading, {})
    assert latency.windows == {1: ProduceWindow(1, 412.0), 2: ProduceWindow(2, 412.0)}


@pytest.mark.parametrize("seed", range(50))
def test_random_readings_never_allow_too_many_moves_and_all_brokers_recover(seed: int) -> None:
    source = random.Random(seed)
    latency, going = ProduceLatency(LIMIT_MS), {1: 0, 2: 0}
    for _ in range(200):
        p99_ms: dict[int, float | None] = {}
        for broker in (1, 2):
            kind = source.randrange(4)
            if kind:
                p99_ms[broker] = None if kind == 1 else source.uniform(0, 2 * LIMIT_MS)
        before = {broker: latency.moves_max(broker, MOVES_MAX) for broker in going}
        latency = read_once(latency, p99_ms, going)
        for broker, was in before.items():
            now, p99 = latency.moves_max(broker, MOVES_MAX), p99_ms.get(broker)
            assert 0 <= now <= MOVES_MAX
            assert now <= was + 1
            if p99 is not None and p99 > LIMIT_MS:
                assert now <= min(was, going[broker]) / 2
            begun = source.randint(0, max(0, now - going[broker]))
            going[broker] += begun - source.randint(0, going[broker])
    for _ in range(MOVES_MAX):
        latency = read_once(latency, {1: LIMIT_MS, 2: 0.0}, going)
    assert latency.holding_back(MOVES_MAX) == {}


# -- the mover ----------------------------------------------------------------------------------------------


def world_of(told: Told | None, moves: int = 12) -> tuple[MoverWorld, list[PlannedMove]]:
    world = MoverWorld(settings=SETTINGS, produce=told)
    planned = [world.planned(world.add("orders", n, [1, 3], 20 * MEGABYTE), [2, 3]) for n in range(moves)]
    world.submit(planned, rate=5 * MEGABYTE)
    return world, planned


def status_of(world: MoverWorld, moves: list[PlannedMove]) -> PlanStatus:
    return plan_status(world.record(), PlanMoves.of(moves), world.clock.now_ms(), world.settings)


def test_no_move_begins_at_a_broker_with_slow_writes_and_the_plan_ends_once_they_are_fast(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = Told()
    world, moves = world_of(told)
    told.p99_ms[2] = 412.0
    world.run(60)
    record = world.record()
    assert record.active == {}
    pending = record.outcomes.count(".")
    world.run(200)  # longer than a plan is held before it is given up
    assert world.record().state is PlanState.RUNNING
    assert world.record().outcomes.count(".") == pending > 0
    status = status_of(world, moves)
    told_text = "held back: produce p99 412 ms on broker 2, limit 300: no move begins"
    assert [str(held_back) for held_back in status.held_back] == [told_text]
    assert status_document(status, SERVED)["held_back"] == status.held_back
    print_status(status, SERVED)
    assert told_text in " ".join(capsys.readouterr().err.split())
    told.p99_ms[2] = 40.0
    assert world.run_until_ended().outcomes == "d" * len(moves)
    assert world.leftovers() == []


def test_moves_under_way_are_not_undone_by_slow_writes() -> None:
    told = Told()
    world, _ = world_of(told)
    world.run(2)
    begun = set(world.record().active)
    told.p99_ms[1] = 900.0
    world.run(60)
    outcomes = world.record().outcomes
    assert begun
    assert all(outcomes[number] == "d" for number in begun)


def test_readings_are_no_more_frequent_than_the_settings_say() -> None:
    told = Told()
    world, _ = world_of(told)
    world.run(40)
    gaps = [after - before for before, after in zip(told.read_at_ms, told.read_at_ms[1:], strict=False)]
    assert set(gaps) == {SETTINGS.produce_every_ms}


def test_brokers_without_a_source_move_as_ever_and_status_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = Told()
    told.p99_ms = {1: 5.0, 3: 5.0}
    world, moves = world_of(told)
    world.run(15)
    status = status_of(world, moves)
    assert status.produce_unread == (2, 4)
    assert status.held_back == ()
    print_status(status, SERVED)
    assert "not read" in capsys.readouterr().err
    assert world.run_until_ended().outcomes == "d" * len(moves)


def test_a_mover_without_a_limit_takes_away_what_another_has_left() -> None:
    told = Told()
    world, moves = world_of(told)
    told.p99_ms[2] = 412.0
    world.run(60)
    assert status_of(world, moves).held_back
    world.produce = None
    world.mover = world.new_mover()
    world.run(1)
    assert world.record().produce_latency is None
    assert world.run_until_ended().outcomes == "d" * len(moves)


def test_prometheus_is_shown_what_writes_take_and_how_many_moves_that_allows() -> None:
    told = Told()
    world, _ = world_of(told)
    metrics = MoverMetrics(world.clock, world.settings)
    world.mover = Mover(
        *(world.administration, world.fleet_store, lambda: FENCE, world.clock, TOKEN),
        settings=world.settings,
        metrics=metrics,
        produce=told,
    )
    told.p99_ms[2] = 412.0
    del told.p99_ms[4]
    world.run(30)
    page = Scrape(metrics.registry.render()[0].decode())
    name = "rtolap_fleet_mover"
    assert page(f"{name}_produce_p99_max_seconds") == 0.3
    assert page(f"{name}_produce_p99_seconds", broker="2") == 0.412
    assert page(f"{name}_broker_moves_max", broker="2") == 0
    assert page(f"{name}_broker_moves_max", broker="1") == MOVES_MAX
    assert page(f"{name}_produce_unread_brokers") == 1
