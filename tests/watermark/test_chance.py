"""Quantiles of counts, against the sum of all probabilities."""

from __future__ import annotations

import random
from math import exp, lgamma, log, sqrt

import pytest
from rtolap.watermark.missing import TAIL, allowed_events, events_at_most, largest_count, largest_mean


def above(count: int, mean: float) -> float:
    """P(a Poisson count > `count`), by all the probabilities up to it."""
    return 1 - sum(exp(at * log(mean) - mean - lgamma(at + 1)) for at in range(count + 1))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 10, 63, 64, 200, 1023, 1024, 5_000])
def test_the_largest_mean_is_where_one_count_in_a_thousand_exceeds(count: int) -> None:
    mean = largest_mean(count)
    assert above(count, mean) <= TAIL * (1 + 1e-6)
    assert above(count, mean + 0.01) > TAIL, "and no smaller than that"


def test_the_smallest_count_that_a_mean_exceeds_once_in_a_thousand() -> None:
    rng = random.Random(1)
    for _ in range(500):
        mean = rng.choice([1e-3, 0.1, 5.0, 50.0, 900.0]) * (1 - rng.random())
        count = largest_count(mean)
        assert above(count, mean) <= TAIL * (1 + 1e-6)
        assert count == 0 or above(count - 1, mean) > TAIL * (1 - 1e-6)
    assert largest_count(0.0) == 0


def test_three_deviations_would_be_too_few_of_small_means() -> None:
    assert 0.1 + 3 * sqrt(0.1) < largest_count(0.1) == 2


def test_what_is_allowed_leads_to_no_more_than_was_asked() -> None:
    rng = random.Random(2)
    for _ in range(500):
        events, dispersion = rng.choice([0.5, 3.0, 100.0, 20_000.0]) * rng.random(), rng.choice([1.0, 2.5])
        allowed = allowed_events(events, dispersion)
        assert 0 <= allowed <= events
        assert events_at_most(allowed, dispersion) <= max(events, allowed) * (1 + 1e-12)
        assert events_at_most(events, dispersion) >= events
    assert allowed_events(0.0, 1.0) == 0.0
