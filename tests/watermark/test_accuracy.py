"""`benchmarks.watermark_accuracy` with a small fleet: what the deficit rule promises, it keeps."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.watermark_accuracy.__main__ import COMPARED, misses
from benchmarks.watermark_accuracy.fleet import SPAN_MS, START_MS
from benchmarks.watermark_accuracy.scenarios import SCENARIOS
from benchmarks.watermark_accuracy.simulate import ESTIMATED, RULES, Closed, Inbox, missing_events, simulate

PRECISE, BOUNDED = "host-precise 99.99 %", "per partition, 30 s, idle 60 s"
THREE = (ESTIMATED, PRECISE, BOUNDED)


@pytest.mark.parametrize("scenario", ["no fault", "skewed rates"])
def test_windows_are_complete_to_the_stated_bound_with_estimated_rates(scenario: str) -> None:
    found = simulate(SCENARIOS[scenario](3, 500), {name: RULES[name] for name in THREE}, tick_ms=2_000)
    deficit = found[ESTIMATED]
    assert len(deficit.shares) == 55
    assert deficit.open == 0
    assert max(deficit.shares) <= 1.5e-4
    for share, bound_ppm in zip(deficit.shares, deficit.bounds_ppm, strict=True):
        assert share <= bound_ppm / 1e6 <= 1.01e-4
    median_s = float(np.median(deficit.delays_ms)) / 1000
    assert median_s <= float(np.median(found[PRECISE].delays_ms)) / 1000
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
    deficit = simulate(fleet, {ESTIMATED: RULES[ESTIMATED]}, tick_ms=2_000)[ESTIMATED]
    assert max(deficit.shares) > 1.5e-4, "somebody was set back"
    logged = [share - later for share, later in zip(deficit.shares, deficit.unlogged_shares, strict=True)]
    assert min(logged) >= 0
    assert max(logged) <= 1.5e-4


def closed(share: float, delay_ms: int, unlogged: float = 0.0, left_open: int = 0) -> Closed:
    return Closed([0.0, share], [0.0, unlogged], [delay_ms] * 2, [100] * 2, left_open)


@pytest.mark.parametrize(
    ("deficit", "missed"),
    [
        (closed(1.4e-4, 13_000), None),
        (closed(1.6e-4, 13_000), "1.60e-04 of a window"),
        (closed(1.6e-4, 13_000, unlogged=1e-4), None),
        (closed(1e-5, 21_000), "in the median"),
        (closed(1e-5, 13_000, left_open=1), "did not close"),
    ],
)
def test_the_bench_says_where_the_aim_is_missed(deficit: Closed, missed: str | None) -> None:
    said = misses("a scenario", {ESTIMATED: deficit, COMPARED: closed(1e-3, 20_000)})
    assert [missed is not None and missed in one for one in said] == [True] * (missed is not None)
