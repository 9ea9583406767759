"""Windows that miss more than declared are reported once their events are there; others never are."""

from __future__ import annotations

import random

import numpy as np
import pytest
from rtolap.watermark.breaches import KEPT_MS, SLOT_MS, Breaches
from rtolap.watermark.rules import Deficit
from rtolap.watermark.snapshot import NEVER

from benchmarks.watermark_accuracy.__main__ import unreported
from benchmarks.watermark_accuracy.scenarios import SCENARIOS
from benchmarks.watermark_accuracy.simulate import ESTIMATED, WINDOW_MS, simulate
from tests.support.seeds import so_many

DECLARED_PPM = 1_000
BROKEN = ("wakes at the stall", "ten-fold jump at the stall")
MINUTE_MS = 60_000
START_MS = 1_700_000_000_000
SEEDS = so_many(30, 100)


@pytest.mark.seeded
@pytest.mark.parametrize("scenario", BROKEN)
@pytest.mark.parametrize("seed", range(so_many(2)))
def test_a_window_that_misses_more_than_declared_is_reported(scenario: str, seed: int) -> None:
    """Sources that wake, and rates that jump, as they stall: nobody can bound that before."""
    rules = {ESTIMATED: Deficit(DECLARED_PPM, WINDOW_MS)}
    closed = simulate(SCENARIOS[scenario](seed, 300), rules, tick_ms=10_000)[ESTIMATED]
    missing = dict(zip(closed.ends_ms, closed.shares, strict=True))
    broken = {end_ms for end_ms, share in missing.items() if share > DECLARED_PPM / 1e6}
    assert broken, "a world in which nothing is missing proves little"
    assert unreported(closed, DECLARED_PPM) == []
    for breach in closed.breaches:
        if breach.window_end_ms in missing:
            estimate = breach.missing_ppm / 1e6
            assert estimate == pytest.approx(missing[breach.window_end_ms], rel=0.15)


@pytest.mark.parametrize("scenario", ["no fault", "0.1 % stalled", "ten-fold jump, then stall"])
def test_where_the_bound_holds_nothing_is_reported(scenario: str) -> None:
    rules = {ESTIMATED: Deficit(DECLARED_PPM, WINDOW_MS)}
    closed = simulate(SCENARIOS[scenario](3, 300), rules, tick_ms=10_000)[ESTIMATED]
    assert max(closed.shares) <= DECLARED_PPM / 1e6
    assert closed.breaches == ()


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_found_is_what_a_recount_finds(seed: int) -> None:
    """Reports of one slot each, in any order, against a recount of each window when it closed."""
    chooser = random.Random(seed)
    window = chooser.choice((1, 3, 6))
    bound_ppm = chooser.choice((1_000, 50_000, 300_000))
    breaches = Breaches(bound_ppm, window * SLOT_MS)
    first = START_MS // SLOT_MS
    begin = (first + 1) * SLOT_MS - 1
    breaches.observe(np.array([begin - SLOT_MS + 1]), np.array([begin]), np.array([1]))
    events: list[tuple[int, int, int]] = [(first, 1, -1)]  # slot, number, mark at which it came
    mark = first
    for _ in range(80):
        if chooser.random() < 0.3:
            mark += chooser.randrange(3)
            breaches.published(mark * SLOT_MS + chooser.randrange(SLOT_MS))
            continue
        slot, number = max(mark + chooser.randrange(-4, 4), first), chooser.randrange(1, 50)
        at = slot * SLOT_MS
        breaches.observe(np.array([at]), np.array([at + SLOT_MS - 1]), np.array([number]))
        events.append((slot, number, mark))
    expected = {}
    for end in range(first + window, mark + 1):
        held = [each for each in events if end - window <= each[0] < end]
        total, late = sum(each[1] for each in held), sum(each[1] for each in held if each[2] >= end)
        if late * 1_000_000 > total * bound_ppm:
            expected[end * SLOT_MS] = late / total * 1e6
    found = {breach.window_end_ms: breach.missing_ppm for breach in breaches.found()}
    assert found.keys() == expected.keys()
    for end_ms, ppm in expected.items():
        assert ppm - 1e-3 <= found[end_ms] <= ppm + 1
    assert breaches.breached_windows == len(found)
    assert breaches.found() == breaches.found()
    assert breaches.breached_windows == len(found), "counted once"


def begun(bound_ppm: int = DECLARED_PPM) -> Breaches:
    """An hour of a hundred events a second, of which all was read before windows closed."""
    breaches = Breaches(bound_ppm, 5 * MINUTE_MS)
    for at_ms in range(START_MS, START_MS + 60 * MINUTE_MS, SLOT_MS):
        breaches.observe(np.array([at_ms]), np.array([at_ms + SLOT_MS]), np.array([1_000]))
        breaches.published(at_ms + SLOT_MS)
    assert breaches.found() == ()
    return breaches


def test_events_whose_beginning_is_not_known_are_of_their_end() -> None:
    breaches, at_ms = begun(), START_MS + 30 * MINUTE_MS
    breaches.observe(np.array([NEVER]), np.array([at_ms]), np.array([400]))
    ends = [breach.window_end_ms for breach in breaches.found()]
    assert ends == list(range(at_ms, at_ms + 5 * MINUTE_MS, SLOT_MS))[: len(ends)]
    assert breaches.of_window(at_ms + MINUTE_MS) is not None
    assert breaches.of_window(at_ms - MINUTE_MS) is None


def test_of_a_report_over_an_idle_hour_each_window_may_have_missed_all() -> None:
    breaches, to_ms = begun(), START_MS + 50 * MINUTE_MS
    breaches.observe(np.array([to_ms - 30 * MINUTE_MS]), np.array([to_ms]), np.array([400]))
    found = breaches.found()
    assert found[0].window_end_ms <= to_ms - 29 * MINUTE_MS
    assert found[-1].window_end_ms >= to_ms + 4 * MINUTE_MS
    assert min(breach.missing_ppm for breach in found) > DECLARED_PPM


def test_the_first_windows_are_not_judged() -> None:
    breaches = Breaches(DECLARED_PPM, 5 * MINUTE_MS)
    breaches.observe(np.array([START_MS - 1]), np.array([START_MS]), np.array([1]))
    breaches.published(START_MS + 4 * MINUTE_MS)
    breaches.observe(np.array([START_MS - 9]), np.array([START_MS]), np.array([1_000]))
    assert breaches.found() == ()


def test_a_day_is_remembered_in_memory_that_does_not_grow() -> None:
    breaches = begun()
    size = breaches.nbytes
    late_ms = START_MS + 59 * MINUTE_MS
    breaches.observe(np.array([late_ms]), np.array([late_ms + SLOT_MS]), np.array([900]))
    assert breaches.found()
    for at_ms in range(START_MS + 60 * MINUTE_MS, START_MS + 2 * KEPT_MS, 5 * MINUTE_MS):
        breaches.observe(np.array([at_ms]), np.array([at_ms + 5 * MINUTE_MS]), np.array([1_000]))
        breaches.published(at_ms)
    assert breaches.found() == ()
    assert breaches.nbytes == size
