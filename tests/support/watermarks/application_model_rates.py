"""Rates of hosts' events and the deficit of a window, the slow and obvious way: one number at a time.

What `watermark.weights` says in words, without its columns: fading counts over fading spans, an index by
event time over who is near its front, errors of chance and of drift. Drift stays what it is before it is
measured: that takes more hosts than this is for. The index is kept for ever. Quantiles of counts are summed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import ceil, exp, expm1, floor, inf, lgamma, log, sqrt
from typing import NamedTuple

PPM = 1_000_000
MEMORY_MS, SAMPLE_MS = 300_000, 10_000
DEVIATIONS = 3
DRIFT_SD = 0.05  # over a memory
SOLID_EVENTS = 20  # of a count that chance is learnt from
CHANGE = 4.5  # deviations of a square root
NEAR_MS = MEMORY_MS // 2
BEYOND = 0.0013498980316300933  # of a normal variable, by three deviations


class Told(NamedTuple):
    """`goes_on`: the report before ended where this one begins."""

    host: str
    events: int
    latest_ms: int
    goes_on: bool


class Weighed(NamedTuple):
    """A host that counts: its estimated rate, and what it is at most; infinite where nothing is known."""

    latest_ms: int | None
    rate: float
    most: float


@dataclass
class Count:
    since_ms: int | None = None
    pending: float = 0.0
    events: float = 0.0
    span_ms: float = 0.0
    index_at: float = 0.0
    rate_at_tick: float = 0.0
    since_at_tick_ms: int | None = None
    moved: bool = False

    @property
    def rate(self) -> float:
        return self.events / self.span_ms if self.span_ms else 0.0


@dataclass
class SlowRates:
    """The rates of one source. Hosts keep their counts when they leave."""

    dispersion: float = 1.0
    counts: dict[str, Count] = field(default_factory=dict)
    index: dict[int, float] = field(default_factory=dict)  # slot of event time → value
    mean: float = 0.0
    ticked_ms: int | None = None

    def observe(self, report: Iterable[Told]) -> None:
        merged: dict[str, Told] = {}
        for one in report:
            old = merged.get(one.host, Told(one.host, 0, one.latest_ms, True))
            both = max(old.latest_ms, one.latest_ms), old.goes_on and one.goes_on
            merged[one.host] = Told(one.host, old.events + one.events, *both)
        ready = []
        for told in merged.values():
            count = self.counts.setdefault(told.host, Count())
            unknown = bool(self.index) and (count.since_ms or 0) < min(self.index) * SAMPLE_MS
            if count.since_ms is None or not told.goes_on or unknown:
                count.since_ms = max(told.latest_ms, count.since_ms or told.latest_ms)
                count.pending = 0.0
            else:
                count.pending += told.events
            if told.latest_ms >= count.since_ms + SAMPLE_MS:
                ready.append((count, told.latest_ms))
        changed = self._learn_dispersion(ready)
        for at, (count, latest_ms) in enumerate(ready):
            span_ms, index = self._sample(count, latest_ms)
            fading = 0.0 if at in changed else exp(-span_ms / MEMORY_MS)
            count.events = count.events * fading + count.pending
            count.span_ms = count.span_ms * fading + span_ms
            count.since_ms, count.pending, count.moved = latest_ms, 0.0, True
            count.index_at = index
            count.rate_at_tick = 0.0 if at in changed else count.rate_at_tick

    def _sample(self, count: Count, latest_ms: int) -> tuple[int, float]:
        """Return the span of the count, and the index of the instant that it stands for."""
        assert count.since_ms is not None
        span_ms = latest_ms - count.since_ms
        return span_ms, self._index_at(latest_ms - int(max(span_ms / 2 - MEMORY_MS, 0)))

    def _index_at(self, at_ms: int) -> float:
        if not self.index:
            return 1.0
        return self.index[min(max(at_ms // SAMPLE_MS, min(self.index)), max(self.index))]

    def _learn_dispersion(self, ready: Sequence[tuple[Count, int]]) -> set[int]:
        """Return the positions of those that have changed."""
        squares = variances = 0.0
        solid, changed = 0, set()
        for at, (count, latest_ms) in enumerate(ready):
            span_ms, index = self._sample(count, latest_ms)
            expected = count.rate * span_ms * index / (count.index_at or index)
            beyond = 2 * (sqrt(count.pending + 0.375) - sqrt(expected + 0.375))
            chance = self.dispersion * (1 + expected / (count.events + 1))
            if count.span_ms and beyond > CHANGE * sqrt(chance):
                changed.add(at)
            elif count.events >= SOLID_EVENTS:
                squares += (count.pending - expected) ** 2
                variances += expected + expected**2 / (2 * count.events)
                solid += 1
        if solid:
            ratio = min(max(squares / variances, 1.0), 100.0)
            self.dispersion += min(solid / 2000, 0.2) * (ratio - self.dispersion)
        return changed

    def estimate(self, hosts: Sequence[str], now_ms: int) -> dict[str, tuple[float, float]]:
        """Return, by host, the events per ms and the largest that they may be."""
        if self.ticked_ms is None or now_ms >= self.ticked_ms + SAMPLE_MS:
            self._tick(now_ms)
        return {host: self._estimate(self.counts.get(host, Count()), now_ms) for host in hosts}

    def _estimate(self, count: Count, now_ms: int) -> tuple[float, float]:
        if self.mean <= 0:
            return 1.0, inf
        if not count.span_ms:
            return self.mean, inf
        assert count.since_ms is not None
        events = count.events + 1
        rate = events / (count.span_ms + 1 / self.mean) * self.index[max(self.index)] / count.index_at
        silent_ms = max(now_ms - count.since_ms, 0)
        variance = self.dispersion / events + DRIFT_SD**2 / MEMORY_MS * (MEMORY_MS / 2 + silent_ms)
        return rate, rate * (1 + expm1(min(DEVIATIONS * sqrt(variance), 5.0)))

    def _tick(self, now_ms: int) -> None:
        self._learn_index([one for one in self.counts.values() if one.moved])
        for one in self.counts.values():
            one.rate_at_tick, one.since_at_tick_ms, one.moved = one.rate, one.since_ms, False
        known = [one.rate for one in self.counts.values() if one.span_ms]
        self.mean = sum(known) / len(known) if known else 0.0
        self.ticked_ms = now_ms

    def _learn_index(self, moved: Sequence[Count]) -> None:
        if not moved:
            return
        front_ms = max(one.since_ms or 0 for one in moved)
        if not self.index:
            first = (front_ms - MEMORY_MS) // SAMPLE_MS
            self.index = dict.fromkeys(range(first, front_ms // SAMPLE_MS + 1), 1.0)
        former = max(self.index)
        former_ms = former * SAMPLE_MS
        front_ms = max(front_ms, former_ms)
        both = [
            one
            for one in moved
            if one.rate_at_tick > 0
            and (one.since_ms or 0) >= front_ms - NEAR_MS
            and (one.since_at_tick_ms or 0) >= former_ms - NEAR_MS
        ]
        before, after = sum(one.rate_at_tick for one in both), sum(one.rate for one in both)
        grown = max(after / before, 1e-6) if both else 1.0
        value, steps = self.index[former], front_ms // SAMPLE_MS - former
        for step in range(1, steps + 1):
            self.index[former + step] = value + value * (grown - 1) * step / steps
        if not steps:
            self.index[former] = value * grown
        for one in moved:
            if (one.since_ms or 0) >= former_ms:
                one.index_at = self._index_at(one.since_ms or 0)


def deficit_mark(hosts: Sequence[Weighed], missing_ppm: int, window_ms: int, dispersion: float) -> int | None:
    """Return the last instant at which what may be missing of the window that ends there is within the bound;
    None before everything."""
    known = [one.latest_ms for one in hosts if one.latest_ms is not None]
    least = _least_total(hosts)
    if not known:
        return None
    if least <= 0:
        return min(known) if len(known) == len(hosts) else None
    may_be_missing = least * window_ms * missing_ppm / PPM
    allowed = min(largest_mean(floor(may_be_missing / dispersion)) * dispersion, may_be_missing)

    def fits(mark_ms: int) -> bool:
        return _missing_at_most(hosts, mark_ms, window_ms, least) <= allowed

    unknown = [one.latest_ms for one in hosts if one.most == inf]
    hosts = [one for one in hosts if one.most < inf]
    known = [one.latest_ms for one in hosts if one.latest_ms is not None]
    at_most = [one for one in unknown if one is not None] or known
    if len(unknown) > len([one for one in unknown if one is not None]):
        return None
    high = min(at_most) if unknown else max(known)
    low = min([*known, high])
    if not fits(low):
        return None
    return high if fits(high) else _last(fits, low, high)


def stated_ppm(hosts: Sequence[Weighed], mark_ms: int, window_ms: int, dispersion: float) -> tuple[int, int]:
    """Return the expected missing share of a window that closes at the mark, and its bound, both in ppm."""
    late = [one for one in hosts if one.latest_ms is None or one.latest_ms < mark_ms]
    if not late:
        return 0, 0
    total, least = sum(one.rate for one in hosts), _least_total(hosts)
    expected = sum(one.rate * _owed(one, mark_ms, window_ms) for one in late) / (total * window_ms)
    if least <= 0 or any(one.most == inf for one in late):
        return _ppm(expected), PPM
    most = _missing_at_most(late, mark_ms, window_ms, least)
    counts = dispersion * smallest_count(most / dispersion)
    return _ppm(expected), _ppm(max(most, counts) / (least * window_ms))


def smallest_count(mean: float) -> int:
    """Return the least count that a Poisson count of this mean exceeds at most once in a thousand times."""
    count, below = 0, _probability(0, mean)
    while 1 - below > BEYOND:
        count += 1
        below += _probability(count, mean)
    return count


@cache
def largest_mean(count: int) -> float:
    """Return the largest mean of which a Poisson count is more than `count` at most once in a thousand times;
    by bisection.
    """
    low, high = 0.0, float(count + 1)
    for _ in range(80):
        middle = (low + high) / 2
        above = 1 - sum(_probability(one, middle) for one in range(count + 1))
        low, high = (middle, high) if above <= BEYOND else (low, middle)
    return low


def _probability(count: int, mean: float) -> float:
    return exp(count * log(mean) - mean - lgamma(count + 1)) if mean > 0 else float(count == 0)


def _missing_at_most(hosts: Iterable[Weighed], mark_ms: int, window_ms: int, least: float) -> float:
    return sum(min(one.most, least) * _owed(one, mark_ms, window_ms) for one in hosts)


def _owed(host: Weighed, mark_ms: int, window_ms: int) -> int:
    return window_ms if host.latest_ms is None else min(max(mark_ms - host.latest_ms, 0), window_ms)


def _least_total(hosts: Sequence[Weighed]) -> float:
    """Return the least total. Errors of hosts are independent. Hosts of which nothing is known may have no
    events."""
    known = [one for one in hosts if one.most < inf]
    spread = sqrt(sum((one.most - one.rate) ** 2 for one in known))
    return max(sum(one.rate for one in known) - spread, 0.0)


def _last(fits: Callable[[int], bool], low: int, high: int) -> int:
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _ppm(share: float) -> int:
    return min(ceil(share * PPM - 1e-6), PPM)
