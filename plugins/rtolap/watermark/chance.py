"""Upper quantiles of counts: how many events come in at most where so many are expected, but for one case in
a thousand.

Exact for a Poisson count: `largest_mean(c)` is the largest mean m with P(count > c) ≤ TAIL, so
1 − P(count ≤ c; m) = TAIL; `largest_count(m)` is the smallest c that m may lead to. m + 3·√m is less than
that where m is small: of 0.1 expected events it allows for one, and two come in five times in a thousand.

Overdispersed counts (variance d · mean) are taken for d times a Poisson count of mean / d.
"""

from __future__ import annotations

from functools import lru_cache
from math import erfc, exp, floor, lgamma, log, sqrt

DEVIATIONS = 3.0  # of a normal variable; what lies beyond happens about once in a thousand windows
TAIL = erfc(DEVIATIONS / sqrt(2)) / 2
_SUMMED_MAX = 1024  # from there on the closed form is at most 0.01 events too small
_MARGIN = 0.001  # events: it is never too large
_STEPS = 8
_NONE_EXPECTED = 1e-12
_NOISE = 1e-12  # of floating point: a mean that was allowed leads to the count that it was allowed for


def largest_mean(count: int) -> float:
    """Return the largest Poisson mean whose count exceeds `count` at most with probability TAIL. Exact below
    1024, then at most 0.01 events too small."""
    return _summed(count) if count < _SUMMED_MAX else _closed(count)


def largest_count(mean: float) -> int:
    """The smallest count that a Poisson variable of this mean exceeds at most with probability TAIL."""
    if mean <= _NONE_EXPECTED:
        return 0
    count = max(floor(mean + DEVIATIONS * sqrt(mean) + (DEVIATIONS**2 - 1) / 6), 0)
    mean *= 1.0 - _NOISE
    while count > 0 and largest_mean(count - 1) >= mean:
        count -= 1
    while largest_mean(count) < mean:
        count += 1
    return count


def allowed_events(events: float, dispersion: float) -> float:
    """Return how many events may be expected to be missing so that, chance included, no more than `events`
    are."""
    if events < dispersion:
        return min(largest_mean(0) * dispersion, events)
    return largest_mean(floor(events / dispersion)) * dispersion


def events_at_most(expected: float, dispersion: float) -> float:
    """Return how many events may be missing, chance included, where so many are expected to be."""
    return max(expected, dispersion * largest_count(expected / dispersion))


def _closed(count: int) -> float:
    """The quantile of a gamma variable of shape count + 1 by Wilson and Hilferty, less its margin."""
    shape = count + 1
    root = 1.0 - 1.0 / (9.0 * shape) - DEVIATIONS / (3.0 * sqrt(shape))
    return shape * root**3 - _MARGIN


@lru_cache(maxsize=_SUMMED_MAX)
def _summed(count: int) -> float:
    """By Newton's steps from the closed form, which is below it: `above` is convex there."""
    mean = max(_closed(count), TAIL / 2)
    for _ in range(_STEPS):
        slope = exp(count * log(mean) - mean - lgamma(count + 1))
        mean += (TAIL - above(count, mean)) / slope
    return mean


def above(count: int, mean: float) -> float:
    """P(a Poisson variable of this mean > count), summed from its largest term on: mean ≤ count + 1."""
    if mean <= 0:
        return 0.0
    at = count + 1
    term = exp(at * log(mean) - mean - lgamma(at + 1))
    total = 0.0
    while term > total * 1e-17:
        total += term
        at += 1
        term *= mean / at
    return total
