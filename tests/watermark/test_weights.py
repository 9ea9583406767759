"""Rates estimated online: they follow drift and the daily shape, and their stated error holds."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from rtolap.watermark.weights import HostRates

START_MS = 1_700_000_000_000
REPORT_MS = 5_000


def feed(
    rates: HostRates, rng: np.random.Generator, expected: NDArray[np.float64], first: int, reporting: slice
) -> int:
    """`expected`: (reports, hosts) mean events. Returns the instant after the last report."""
    hosts = np.arange(expected.shape[1])[reporting]
    for at, means in enumerate(expected, start=first):
        now_ms = START_MS + (at + 1) * REPORT_MS
        rates.observe(hosts, rng.poisson(means[hosts]), np.full(hosts.size, now_ms))
        rates.estimate(now_ms)
    return START_MS + (first + len(expected)) * REPORT_MS


def covered(rates: HostRates, now_ms: int, true_per_ms: NDArray[np.float64]) -> NDArray[np.bool_]:
    one = rates.estimate(now_ms)
    return one.events_per_ms * (1 + one.relative_error) >= true_per_ms


def test_steady_rates_are_found_and_their_bound_holds() -> None:
    rng = np.random.default_rng(1)
    true = rng.lognormal(0, 1.5, 2_000) / 1000
    rates = HostRates(2_000)
    now_ms = feed(rates, rng, np.tile(true * REPORT_MS, (240, 1)), 0, slice(None))
    one = rates.estimate(now_ms)
    assert abs(one.events_per_ms.sum() / true.sum() - 1) < 0.01
    assert covered(rates, now_ms, true).mean() > 0.99
    assert one.dispersion == pytest.approx(1.0, abs=0.15)
    assert rates.drift_sd < 0.05
    busy = true > 0.005
    assert one.relative_error[busy].mean() < 0.3


def test_a_stalled_host_follows_the_daily_shape_of_the_others() -> None:
    """All rates double within the half hour in which a tenth of the hosts say nothing."""
    rng = np.random.default_rng(2)
    base = np.full(500, 2.0) * REPORT_MS / 1000
    rates = HostRates(500)
    feed(rates, rng, np.tile(base, (240, 1)), 0, slice(None))
    rising = base * np.linspace(1, 2, 360)[:, None]
    now_ms = feed(rates, rng, rising, 240, slice(50, None))
    one = rates.estimate(now_ms)
    stalled, others = one.events_per_ms[:50].mean(), one.events_per_ms[50:].mean()
    assert stalled / others == pytest.approx(1.0, abs=0.05)
    assert covered(rates, now_ms, np.full(500, 0.004))[:50].all()


def test_the_error_of_a_stalled_host_grows_with_time_and_drift() -> None:
    rng = np.random.default_rng(3)
    hosts, reports = 1_000, 720
    walk = np.cumsum(rng.normal(0, 0.2 / np.sqrt(60), (reports + 240, hosts)), axis=0)
    expected = 5.0 * REPORT_MS / 1000 * np.exp(walk)
    rates = HostRates(hosts)
    now_ms = feed(rates, rng, expected[:reports], 0, slice(None))
    assert 0.1 < rates.drift_sd < 0.4
    before = rates.estimate(now_ms).relative_error[:100].mean()
    now_ms = feed(rates, rng, expected[reports:], reports, slice(100, None))
    after = rates.estimate(now_ms).relative_error[:100].mean()
    assert after > 1.5 * before
    assert covered(rates, now_ms, expected[-1] / REPORT_MS)[:100].mean() > 0.97


def test_of_a_host_never_counted_nothing_is_known_however_many_others_are() -> None:
    rng = np.random.default_rng(4)
    rates = HostRates(500)
    now_ms = feed(rates, rng, np.full((120, 500), 5.0), 0, slice(None))
    rates.grow(501)
    rates.observe(np.array([500]), np.array([9]), np.array([now_ms]))  # from when on, nobody knows
    one = rates.estimate(now_ms + 10_000)
    assert np.isinf(one.relative_error).tolist() == [False] * 500 + [True]
    rates.observe(np.array([500]), np.array([30]), np.array([now_ms + 10_000]))
    assert np.isfinite(rates.estimate(now_ms + 20_000).relative_error).all()


def test_a_backlog_of_another_time_of_day_is_compared_with_the_others_at_that_time() -> None:
    """All rates rise four-fold in half an hour. Hosts that stood still at its beginning come in an hour later
    with the first minutes of it, and stand still again."""
    rng = np.random.default_rng(12)
    base = np.full(300, 4.0) * REPORT_MS / 1000
    rising = base * 4.0 ** np.clip(np.arange(720) / 360, 0, 1)[:, None]
    rates = HostRates(300)
    feed(rates, rng, np.tile(base, (240, 1)), 0, slice(None))
    now_ms = feed(rates, rng, rising, 240, slice(30, None))
    late = np.arange(30)
    for at in range(60):
        then_ms = START_MS + (241 + at) * REPORT_MS
        rates.observe(late, rng.poisson(rising[at, :30]), np.full(30, then_ms))
    one = rates.estimate(now_ms)
    assert one.events_per_ms[:30].mean() == pytest.approx(0.016, rel=0.06)
    assert covered(rates, now_ms, np.full(300, 0.016)).all()
    assert one.events_per_ms[30:].mean() == pytest.approx(0.016, rel=0.06), "nor do they move the others"


def test_a_host_that_logs_ten_times_as_much_is_known_within_a_minute() -> None:
    rng = np.random.default_rng(13)
    means = np.full((240, 200), 5.0)
    rates = HostRates(200)
    feed(rates, rng, means, 0, slice(None))
    means[:, :20] *= 10
    now_ms = feed(rates, rng, means[:12], 240, slice(None))
    one = rates.estimate(now_ms)
    assert one.events_per_ms[:20].mean() == pytest.approx(0.01, rel=0.1)
    assert covered(rates, now_ms, np.full(200, 0.01))[:20].all()
    assert one.events_per_ms[20:].mean() == pytest.approx(0.001, rel=0.1)


def test_nothing_is_promised_before_anybody_was_counted() -> None:
    rates = HostRates(3)
    assert np.isinf(rates.estimate(START_MS).relative_error).all()
    rates.observe(np.arange(3), np.zeros(3, np.int64), np.full(3, START_MS))
    assert np.isinf(rates.estimate(START_MS + 60_000).relative_error).all()


def test_a_new_host_is_known_better_with_every_minute() -> None:
    rng = np.random.default_rng(5)
    rates = HostRates(200)
    means = np.full((120, 200), 3.0 * REPORT_MS / 1000)
    feed(rates, rng, means, 0, slice(0, 199))
    errors = []
    for minute in range(4):
        now_ms = feed(rates, rng, means[:12], 120 + 12 * minute, slice(None))
        errors.append(rates.estimate(now_ms).relative_error[199])
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.5


def test_a_backlog_that_comes_in_fast_counts_as_what_it_was() -> None:
    rates = HostRates(1)
    rates.observe(np.array([0]), np.array([0]), np.array([START_MS]))
    for step in range(1, 61):  # an hour of events within a minute
        rates.observe(np.array([0]), np.array([120]), np.array([START_MS + step * 60_000]))
        one = rates.estimate(START_MS + 3_600_000 + step * 1_000)
    assert one.events_per_ms[0] == pytest.approx(0.002, rel=0.05)


def test_a_silent_host_weighs_little_but_not_nothing() -> None:
    rng = np.random.default_rng(6)
    means = np.full((240, 100), 3.0 * REPORT_MS / 1000)
    means[:, 0] = 0
    rates = HostRates(100)
    now_ms = feed(rates, rng, means, 0, slice(None))
    one = rates.estimate(now_ms)
    assert 0 < one.events_per_ms[0] < one.events_per_ms[1:].min() / 20


def test_indices_are_kept_or_rebuilt() -> None:
    rng = np.random.default_rng(7)
    rates = HostRates(3)
    means = np.tile(np.array([1.0, 2.0, 4.0]) * REPORT_MS / 1000, (400, 1))
    now_ms = feed(rates, rng, means, 0, slice(None))
    before = rates.estimate(now_ms).events_per_ms
    rates.keep(np.array([2, 0]))
    assert rates.estimate(now_ms).events_per_ms.tolist() == pytest.approx([before[2], before[0]])
