"""The rules: which instant, held by whom, with which share missing."""

from __future__ import annotations

import random
from fractions import Fraction
from math import floor, isinf
from typing import Any

import numpy as np
import pytest
from rtolap.watermark.missing import allowed_events, behind, missing, totals
from rtolap.watermark.rules import Deficit, HostPrecise, Rule
from rtolap.watermark.snapshot import NEVER, SourceSnapshot
from rtolap.watermark.solve import Shares, largest_mark, scale_bits

from benchmarks.watermark_accuracy.compared import GlobalMax, PartitionBounded, PartitionSnapshot

NOW_MS = 1_700_000_000_000
WINDOW_MS = 300_000


def snapshot(latest_ms: list[int], **changes: Any) -> SourceSnapshot:
    n = len(latest_ms)
    values: dict[str, Any] = {
        "now_ms": NOW_MS,
        "names": [f"h{at}" for at in range(n)],
        "latest_ms": np.array(latest_ms, np.int64),
        "events_per_ms": np.full(n, 1.0),
        "relative_error": np.zeros(n),
        "listed": np.ones(n, np.bool_),
        "drained": np.zeros(n, np.bool_),
    }
    return SourceSnapshot(**(values | changes))


def test_the_allowed_number_of_late_hosts_is_exact() -> None:
    """0.0001 · 10 000 is one host; by floating point, 1 − 0.9999 would make it none."""
    latest = [NOW_MS - 100_000, NOW_MS - 50_000, *[NOW_MS] * 9_998]
    assert HostPrecise(100).decide(snapshot(latest)).watermark_ms == NOW_MS - 50_000
    assert HostPrecise(99).decide(snapshot(latest)).watermark_ms == NOW_MS - 100_000
    assert HostPrecise(200).decide(snapshot(latest)).watermark_ms == NOW_MS


def test_a_host_never_seen_uses_up_the_allowance() -> None:
    latest = [NEVER, NOW_MS - 7_000, *[NOW_MS] * 998]
    assert HostPrecise(0).decide(snapshot(latest)).watermark_ms is None
    one = HostPrecise(1000).decide(snapshot(latest))
    assert one.watermark_ms == NOW_MS - 7_000
    assert sorted(one.holding.tolist()) == [0, 1]
    assert one.expected_missing_ppm == 1000
    deficit = Deficit(1000, WINDOW_MS)
    assert deficit.decide(snapshot(latest)).watermark_ms is None  # less the chance in counts, it is too much
    lighter = np.array([0.5, *[1.0] * 999])
    assert deficit.decide(snapshot(latest, events_per_ms=lighter)).watermark_ms is not None


def test_who_does_not_count_holds_nothing() -> None:
    latest = [NEVER, NOW_MS - 9_000, NOW_MS - 1_000]
    listed, drained = np.array([False, True, True]), np.array([False, True, False])
    for rule in (HostPrecise(0), Deficit(0, WINDOW_MS)):
        one = rule.decide(snapshot(latest, listed=listed, drained=drained))
        assert one.watermark_ms == NOW_MS - 1_000
        assert one.holding.tolist() == [2]


def of_partitions(latest_ms: list[int], idle_ms: list[int]) -> PartitionSnapshot:
    nothing, no_rates, nobody = np.empty(0, np.int64), np.empty(0), np.empty(0, np.bool_)
    return PartitionSnapshot(
        *(NOW_MS, (), nothing, no_rates, no_rates, nobody, nobody),
        partition_latest_ms=np.array(latest_ms, np.int64),
        partition_idle_ms=np.array(idle_ms, np.int64),
    )


@pytest.mark.parametrize("rule", [HostPrecise(1000), Deficit(100, WINDOW_MS)])
def test_nothing_known_is_no_watermark(rule: Rule) -> None:
    assert rule.decide(snapshot([])).watermark_ms is None
    assert rule.decide(snapshot([NEVER, NEVER])).watermark_ms is None


@pytest.mark.parametrize("rule", [GlobalMax(5), PartitionBounded(5, 5)])
def test_without_partitions_there_is_no_watermark(rule: Rule) -> None:
    assert rule.decide(of_partitions([], [])).watermark_ms is None


def test_a_watermark_is_never_beyond_what_any_host_has_logged() -> None:
    latest = [NOW_MS, NOW_MS]
    for rule in (HostPrecise(0), Deficit(100_000, WINDOW_MS)):
        assert rule.decide(snapshot(latest)).watermark_ms == NOW_MS


def test_the_deficit_weighs_hosts_by_their_events() -> None:
    """The same lag of a host with a hundredth of the events allows for a hundred times the share."""
    rates = np.array([1.0, 100.0, *[100.0] * 98])
    small_late = snapshot([NOW_MS - 60_000, *[NOW_MS] * 99], events_per_ms=rates)
    large_late = snapshot([NOW_MS, NOW_MS - 60_000, *[NOW_MS] * 98], events_per_ms=rates)
    rule = Deficit(50, WINDOW_MS)
    assert rule.decide(small_late).watermark_ms == NOW_MS
    held = rule.decide(large_late).watermark_ms
    assert held is not None
    assert NOW_MS - 60_000 < held < NOW_MS - 58_000
    assert rule.decide(large_late).bound_ppm <= 50


def test_the_error_of_an_estimate_is_part_of_the_bound() -> None:
    latest = [NOW_MS - 200_000, *[NOW_MS] * 999]
    exact, vague = snapshot(latest), snapshot(latest, relative_error=np.full(1000, 0.5))
    rule = Deficit(500, WINDOW_MS)
    first, second = rule.decide(exact), rule.decide(vague)
    assert first.watermark_ms is not None
    assert second.watermark_ms is not None
    assert second.watermark_ms < first.watermark_ms
    assert second.expected_missing_ppm < second.bound_ppm <= 500
    at = NOW_MS - 100_000
    assert missing(exact, at, WINDOW_MS).expected_ppm == missing(vague, at, WINDOW_MS).expected_ppm
    assert missing(exact, at, WINDOW_MS).bound_ppm < missing(vague, at, WINDOW_MS).bound_ppm


def test_of_a_host_of_which_nothing_is_known_nothing_is_promised() -> None:
    error = np.array([np.inf, 0.0, 0.0])
    one = snapshot([NOW_MS - 5_000, NOW_MS - 2_000, NOW_MS], relative_error=error)
    assert Deficit(100_000, WINDOW_MS).decide(one).watermark_ms == NOW_MS - 5_000
    assert missing(one, NOW_MS, WINDOW_MS).bound_ppm == 1_000_000
    nobody = snapshot([NOW_MS - 5_000, NOW_MS], relative_error=np.full(2, np.inf))
    assert Deficit(100_000, WINDOW_MS).decide(nobody).watermark_ms == NOW_MS - 5_000


def test_who_is_behind_is_listed_with_how_far_and_how_much() -> None:
    one = snapshot([NOW_MS, NOW_MS - 60_000, NEVER, NOW_MS - 1_000])
    found = behind(one, NOW_MS, WINDOW_MS, limit=2)
    assert [(host.host, host.latest_ms, host.behind_ms, host.share_ppm) for host in found] == [
        ("h2", None, None, 250_000),
        ("h1", NOW_MS - 60_000, 60_000, 50_000),
    ]
    assert behind(one, NOW_MS - 120_000, WINDOW_MS, 9)[0].share_ppm == 250_000


def test_idle_partitions_are_left_out_and_those_waiting_are_not() -> None:
    """Idleness is silence at the end of a partition: one whose reader stands still (0 ms idle) holds."""
    latest = [NOW_MS - 100_000, NOW_MS]
    rule = PartitionBounded(30_000, 60_000)
    for idle_ms, expected in (
        ([0, 0], NOW_MS - 130_000),
        ([60_000, 0], NOW_MS - 30_000),
        ([60_000, 60_000], NOW_MS - 30_000),
    ):
        assert rule.decide(of_partitions(latest, idle_ms)).watermark_ms == expected
    assert GlobalMax(1_000).decide(of_partitions(latest, [0, 0])).watermark_ms == NOW_MS - 1_000


def slow_precise(latest: list[int], ppm: int) -> int | None:
    """Walk up the hosts until more than the allowed share would be behind."""
    allowed = floor(Fraction(ppm, 1_000_000) * len(latest))
    best = sorted(latest)[allowed]
    assert sum(one < best for one in latest) <= allowed
    return None if best == NEVER else best


def slow_deficit(latest: list[int], shares: list[int], budget: int, window_ms: int, most: int) -> int | None:
    """By bisection over every instant, in whole numbers, host by host."""

    def owed(mark: int) -> int:
        return sum(
            share * min(max(mark - one, 0), window_ms) for one, share in zip(latest, shares, strict=True)
        )

    seen = [one for one in latest if one != NEVER]
    if not seen or owed(min(seen)) > budget:
        return None
    low, high = min(seen), most
    if high <= low or owed(high) <= budget:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if owed(middle) <= budget else (low, middle)
    return low


def random_snapshot(rng: random.Random) -> SourceSnapshot:
    n = rng.randint(1, 12) if rng.random() < 0.95 else rng.randint(100, 400)
    spread = rng.choice([10, 5_000, 400_000, 30 * 86_400_000])
    latest = [NEVER if rng.random() < 0.1 else NOW_MS - rng.randint(0, spread) for _ in range(n)]
    errors = [rng.choice([0.0, 0.1, 2.0, np.inf if rng.random() < 0.1 else 0.3]) for _ in range(n)]
    return snapshot(
        latest,
        events_per_ms=np.array([rng.lognormvariate(0, 2) for _ in range(n)]),
        relative_error=np.array(errors),
        listed=np.array([rng.random() < 0.9 for _ in range(n)]),
        drained=np.array([rng.random() < 0.1 for _ in range(n)]),
        dispersion=rng.choice([1.0, 3.0]),
    )


def counting_columns(one: SourceSnapshot) -> tuple[list[int], list[float], list[float]]:
    counts = [bool(listed and not drained) for listed, drained in zip(one.listed, one.drained, strict=True)]
    rows = zip(
        one.latest_ms.tolist(), one.events_per_ms.tolist(), one.relative_error.tolist(), counts, strict=True
    )
    found = [(latest, rate, error) for latest, rate, error, counting in rows if counting]
    return [row[0] for row in found], [row[1] for row in found], [row[2] for row in found]


@pytest.mark.parametrize("seed", range(4))
def test_rules_equal_a_slow_walk_over_the_hosts(seed: int) -> None:
    """1 500 random snapshots a seed, each with both rules."""
    rng = random.Random(seed)
    for _ in range(1_500):
        one = random_snapshot(rng)
        latest, rates, errors = counting_columns(one)
        ppm = rng.choice([0, 100, 1000, 100_000])
        window = rng.choice([1_000, WINDOW_MS, 86_400_000])
        if not latest:
            assert Deficit(ppm, window).decide(one).watermark_ms is None
            continue
        assert HostPrecise(ppm).decide(one).watermark_ms == slow_precise(latest, ppm)
        decision = Deficit(ppm, window).decide(one)
        unknown = [at for at, error in zip(latest, errors, strict=True) if isinf(error)]
        if len(unknown) == len(latest) or totals(np.array(rates), np.array(errors)).least <= 0:
            least_seen = min(latest)
            assert decision.watermark_ms == (None if least_seen == NEVER else least_seen)
            continue
        known = [at for at, error in enumerate(errors) if not isinf(error)]
        sub_rates, sub_errors = np.array([rates[at] for at in known]), np.array([errors[at] for at in known])
        total = totals(np.array(rates), np.array(errors)).least
        events = total * window
        allowed = allowed_events(events * ppm / 1_000_000, one.dispersion) / events
        fractions = Shares(sub_rates, sub_errors, total, totals(sub_rates, sub_errors).most / total)
        bits = scale_bits(window, fractions.sum)
        shares = fractions.whole(np.arange(len(known)), bits).tolist()
        most = min(unknown) if unknown else max(latest)
        known_latest = [latest[at] for at in known]
        if most == NEVER:
            assert decision.watermark_ms is None
            continue
        budget = floor(allowed * 2.0**bits * window)
        in_reach = [one_latest for one_latest in known_latest if one_latest != NEVER]
        if not in_reach or min(in_reach) > most:  # only who is unknown, or never seen, is behind
            fits = (
                sum(s for s, at in zip(shares, known_latest, strict=True) if at == NEVER) * window <= budget
            )
            assert decision.watermark_ms == (most if fits else None)
            continue
        assert decision.watermark_ms == slow_deficit(known_latest, shares, budget, window, most)
        if decision.watermark_ms is not None:
            assert decision.bound_ppm <= ppm or not any(at < decision.watermark_ms for at in latest)


def test_large_snapshots_are_solved_as_exactly_as_small_ones() -> None:
    rng = np.random.default_rng(5)
    latest = NOW_MS - rng.integers(0, 6_000, 9_000)
    latest[:20] -= rng.integers(0, 900_000, 20)
    rates, errors = rng.lognormal(0, 1, 9_000), np.full(9_000, 0.1)
    total = float(rates.sum())
    fractions = Shares(rates, errors, total, totals(rates, errors).most / total)
    bits = scale_bits(WINDOW_MS, fractions.sum)
    shares = fractions.whole(np.arange(9_000), bits).tolist()
    for allowed in (1e-6, 1e-4, 1e-2, 0.5):
        mark = largest_mark(latest, fractions, allowed, WINDOW_MS, int(latest.max()))
        budget = floor(allowed * 2.0**bits * WINDOW_MS)
        assert mark == slow_deficit(latest.tolist(), shares, budget, WINDOW_MS, int(latest.max()))


@pytest.mark.parametrize("seed", range(4))
def test_a_mark_is_the_last_instant_within_the_budget_wherever_stepping_ends(seed: int) -> None:
    """A thousand hosts are stepped towards; 400 snapshots a seed."""
    rng = np.random.default_rng(seed)
    for _ in range(400):
        lateness_ms = rng.integers(0, 5_000, 1_000) + 300 + rng.exponential(700, 1_000)
        lateness_ms += (rng.random(1_000) < 0.01) * rng.exponential(10_000, 1_000)
        latest = NOW_MS - lateness_ms.astype(np.int64)
        rates, errors = rng.lognormal(0, 0.5, 1_000), np.zeros(1_000)
        fractions = Shares(rates, errors, float(rates.sum()), 1.0)
        bits = scale_bits(WINDOW_MS, fractions.sum)
        shares = fractions.whole(np.arange(1_000), bits)
        budget = floor(5.5e-5 * 2.0**bits * WINDOW_MS)
        most_ms = int(latest.max())
        mark = largest_mark(latest, fractions, 5.5e-5, WINDOW_MS, most_ms)
        assert int(shares @ np.clip(mark - latest, 0, WINDOW_MS)) <= budget
        assert mark == most_ms or int(shares @ np.clip(mark + 1 - latest, 0, WINDOW_MS)) > budget
