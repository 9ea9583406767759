"""`benchmarks.watermark_accuracy` with a small fleet: what the deficit rule promises, it keeps."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.watermark_accuracy.fleet import SPAN_MS, START_MS
from benchmarks.watermark_accuracy.scenarios import SCENARIOS
from benchmarks.watermark_accuracy.simulate import ESTIMATED, RULES, Inbox, missing_events, simulate

PRECISE, BOUNDED = "host-precise 99.99 %", "per partition, 30 s, idle 60 s"
COMPARED = (ESTIMATED, PRECISE, BOUNDED)


@pytest.mark.parametrize("scenario", ["no fault", "skewed rates"])
def test_windows_are_complete_to_the_stated_bound_with_estimated_rates(scenario: str) -> None:
    found = simulate(SCENARIOS[scenario](3, 500), {name: RULES[name] for name in COMPARED}, tick_ms=2_000)
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
