"""`benchmarks.watermark_accuracy` with a small fleet: what the deficit rule promises, it keeps."""

from __future__ import annotations

import numpy as np
import pytest
from rtolap.watermark.rules import Deficit

from benchmarks.watermark_accuracy.__main__ import misses
from benchmarks.watermark_accuracy.fleet import SPAN_MS, START_MS
from benchmarks.watermark_accuracy.scenarios import SCENARIOS, TIMES_STATED
from benchmarks.watermark_accuracy.simulate import (
    ESTIMATED,
    RULES,
    WINDOW_MS,
    Closed,
    Inbox,
    missing_events,
    simulate,
)

PRECISE, BOUNDED = "host-precise 99.99 %", "per partition, 30 s, idle 60 s"
THREE = (ESTIMATED, PRECISE, BOUNDED)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_window_misses_more_than_was_stated_when_it_closed(scenario: str) -> None:
    """A few hundred hosts, of whom one that owes a window's events is more than may be missing."""
    rules = {ESTIMATED: Deficit(1_000, WINDOW_MS)}
    deficit = simulate(SCENARIOS[scenario](3, 300), rules, tick_ms=10_000)[ESTIMATED]
    assert len(deficit.shares) == 330
    assert misses(scenario, deficit, TIMES_STATED.get(scenario, 1.0)) == []
    assert max(deficit.bounds_ppm) <= 1_000, "what may be missing"


@pytest.mark.parametrize("scenario", ["no fault", "skewed rates"])
def test_a_bound_on_events_waits_no_longer_than_for_all_but_one_in_ten_thousand_hosts(scenario: str) -> None:
    found = simulate(SCENARIOS[scenario](3, 500), {name: RULES[name] for name in THREE}, tick_ms=4_000)
    deficit = found[ESTIMATED]
    assert max(deficit.shares) <= 1e-4
    assert np.median(deficit.delays_ms) <= np.median(found[PRECISE].delays_ms)
    if scenario != "no fault":
        assert max(found[BOUNDED].shares) > 5e-4


def test_the_bench_counts_every_event_once() -> None:
    fleet = SCENARIOS["clock jumps"](3, 200)
    inbox = Inbox(fleet)
    end_ms = START_MS + SPAN_MS // 2
    everything = missing_events(fleet, inbox.read, end_ms)
    inbox.take(START_MS + SPAN_MS + 3_600_000)
    assert missing_events(fleet, inbox.read, end_ms) == pytest.approx(0.0)
    rates = fleet.rates.sum() * 300_000
    assert everything == pytest.approx(rates, rel=0.2)


def test_clocks_that_are_set_back_cost_only_what_was_logged_after_closing() -> None:
    fleet = SCENARIOS["clock jumps"](3, 500)
    deficit = simulate(fleet, {ESTIMATED: RULES[ESTIMATED]}, tick_ms=4_000)[ESTIMATED]
    assert max(deficit.shares) > 1.5e-4, "somebody was set back"
    logged = [share - later for share, later in zip(deficit.shares, deficit.unlogged_shares, strict=True)]
    assert min(logged) >= 0
    assert max(logged) <= 1.5e-4


def closed(share: float, bound_ppm: int, unlogged: float = 0.0, left_open: int = 0) -> Closed:
    return Closed([0.0, share], [0.0, unlogged], [13_000] * 2, [bound_ppm] * 2, left_open)


@pytest.mark.parametrize(
    ("deficit", "times", "missed"),
    [
        (closed(0.9e-4, 100), 1.0, None),
        (closed(1.6e-4, 100), 1.0, "1 windows more is missing than stated, 1.60e-04 against 1.00e-04"),
        (closed(1.6e-4, 100, unlogged=1e-4), 1.0, None),
        (closed(9e-4, 100), 10.0, None),
        (closed(1e-5, 100, left_open=1), 1.0, "did not close"),
    ],
)
def test_the_bench_says_where_the_promise_is_broken(
    deficit: Closed, times: float, missed: str | None
) -> None:
    said = misses("a scenario", deficit, times)
    assert [missed is not None and missed in one for one in said] == [True] * (missed is not None)
