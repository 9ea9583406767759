"""The share of a window's events that is still to come, and of which hosts, the chance in counts included.

Chance is told by upper quantiles of counts: how many events come in at most where so many are expected, but
for one case in a thousand. Exact for a Poisson count: `largest_mean(c)` is the largest mean m with
P(count > c) ≤ TAIL, so 1 − P(count ≤ c; m) = TAIL; `largest_count(m)` is the smallest c that m may lead to.
m + 3·√m is less than that where m is small: of 0.1 expected events it allows for one, and two come in five
times in a thousand. Overdispersed counts (variance d · mean) are taken for d times a Poisson count of
mean / d.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, erfc, exp, floor, inf, isfinite, lgamma, log, sqrt

import numpy as np

from rtolap.watermark.snapshot import NEVER, Indices, Instants, Rates, SourceSnapshot, as_ms

DEVIATIONS = 3.0  # of a normal variable; what lies beyond happens about once in a thousand windows
TAIL = erfc(DEVIATIONS / sqrt(2)) / 2
_SUMMED_MAX = 1024  # from there on the closed form is at most 0.01 events too small
_MARGIN = 0.001  # events: it is never too large
_STEPS = 8
_NONE_EXPECTED = 1e-12
_NOISE = 1e-12  # of floating point: a mean that was allowed leads to the count that it was allowed for

PPM = 1_000_000


def largest_mean(count: int) -> float:
    """Return the largest Poisson mean whose count exceeds `count` at most with probability TAIL. Exact below
    1024, then at most 0.01 events too small."""
    return _summed(count) if count < _SUMMED_MAX else _closed(count)


def largest_count(mean: float) -> int:
    """Return the smallest count that a Poisson variable of this mean exceeds at most with probability
    TAIL.
    """
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
    """Return the quantile of a gamma variable of shape count + 1 by Wilson and Hilferty, less its margin."""
    shape = count + 1
    root = 1.0 - 1.0 / (9.0 * shape) - DEVIATIONS / (3.0 * sqrt(shape))
    return shape * root**3 - _MARGIN


@lru_cache(maxsize=_SUMMED_MAX)
def _summed(count: int) -> float:
    """Solve by Newton's steps from the closed form, which is below it: `above` is convex there."""
    mean = max(_closed(count), TAIL / 2)
    for _ in range(_STEPS):
        slope = exp(count * log(mean) - mean - lgamma(count + 1))
        mean += (TAIL - above(count, mean)) / slope
    return mean


def above(count: int, mean: float) -> float:
    """Return P(a Poisson variable of this mean > count), summed from its largest term on; mean ≤ count +
    1."""
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


@dataclass(frozen=True, slots=True)
class Missing:
    """`expected_ppm` by the estimated rates; `bound_ppm` by their upper bounds, and with the chance in
    counts."""

    expected_ppm: int
    bound_ppm: int


@dataclass(frozen=True, slots=True)
class Behind:
    """A host that has not reached an instant.

    Attributes:
        share_ppm: of a window's events, how many it may still owe.
    """

    host: str
    latest_ms: int | None
    behind_ms: int | None
    share_ppm: int


def deficit_ms(latest_ms: Instants, mark_ms: int, window_ms: int) -> Instants:
    """Return, for the window that ends at `mark_ms`, the part after each host's progress; with NEVER all of
    it is missing."""
    owed: Instants = np.maximum(mark_ms - np.maximum(latest_ms, mark_ms - window_ms), 0)
    return owed


@dataclass(frozen=True, slots=True)
class Totals:
    """The totals of the hosts that count: the sum of their rates, a lower bound of it, and the sum of their
    upper bounds, infinite if nothing is known of one of them. In events per ms."""

    expected: float
    least: float
    most: float


def totals(rates: Rates, errors: Rates) -> Totals:
    """Return totals. Errors of hosts are independent, so they add as squares."""
    spread = rates * errors
    squares = float(np.dot(spread, spread))
    expected = float(np.add.reduce(rates))
    if isfinite(squares):
        return Totals(expected, max(expected - sqrt(squares), 0.0), expected + float(np.dot(rates, errors)))
    known = np.isfinite(errors)  # hosts without a known rate may well have no events
    return Totals(expected, totals(rates[known], errors[known]).least, inf)


def missing(snapshot: SourceSnapshot, mark_ms: int, window_ms: int) -> Missing:
    """Return what is missing of a window of that length which closes at `mark_ms`."""
    counting = snapshot.counting
    holding = np.flatnonzero(counting & (snapshot.latest_ms <= mark_ms))
    total = totals(snapshot.events_per_ms[counting], snapshot.relative_error[counting])
    return missing_of(snapshot, holding, mark_ms, window_ms, total)


def missing_of(
    snapshot: SourceSnapshot, holding: Indices, mark_ms: int, window_ms: int, total: Totals
) -> Missing:
    """Return what is missing below `mark_ms`.

    Args:
        holding: the hosts that count and are not beyond `mark_ms`.
        total: of all that count.
    """
    latest_ms = snapshot.latest_ms[holding]
    if total.least <= 0 or not isfinite(total.most):
        late = latest_ms < mark_ms  # of hosts at the mark nothing is missing, known or not
        holding, latest_ms = holding[late], latest_ms[late]
    if not holding.size:
        return Missing(0, 0)
    owed_ms = (mark_ms - np.maximum(latest_ms, mark_ms - window_ms)).astype(np.float64)
    rates, errors = snapshot.events_per_ms[holding], snapshot.relative_error[holding]
    all_events, least = total.expected * window_ms, total.least
    expected = _up(float(np.dot(rates, owed_ms)) / all_events) if all_events > 0 else PPM
    if least <= 0 or not isfinite(errors.max()):
        return Missing(expected, PPM)
    errors += 1.0
    errors *= rates
    at_most = float(np.dot(np.minimum(errors, least), owed_ms))
    return Missing(expected, _up(events_at_most(at_most, snapshot.dispersion) / (least * window_ms)))


def behind(snapshot: SourceSnapshot, mark_ms: int, window_ms: int, limit: int) -> tuple[Behind, ...]:
    """Return the hosts that have not reached `mark_ms`, the furthest behind first; the larger share first
    among equals.
    """
    late: Indices = np.flatnonzero(snapshot.counting & (snapshot.latest_ms < mark_ms))
    latest_ms = snapshot.latest_ms[late]
    total = float(snapshot.events_per_ms[snapshot.counting].sum())
    shares = snapshot.events_per_ms[late] * deficit_ms(latest_ms, mark_ms, window_ms) / window_ms
    hosts_behind = []
    for position in np.lexsort((-shares, latest_ms))[:limit].tolist():
        known = latest_ms[position] != NEVER
        hosts_behind.append(
            Behind(
                host=snapshot.names[late[position]],
                latest_ms=as_ms(latest_ms[position]),
                behind_ms=snapshot.now_ms - int(latest_ms[position]) if known else None,
                share_ppm=_up(float(shares[position]) / total if total > 0 else 1.0),
            )
        )
    return tuple(hosts_behind)


def _up(share: float) -> int:
    """Return parts per million, never less than the share, but for the noise of floating point."""
    return min(ceil(share * PPM - 1e-6), PPM)
