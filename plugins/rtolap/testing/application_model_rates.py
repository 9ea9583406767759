"""How many events hosts log and what a window may miss, the slow and obvious way: one number at a time.

What `watermark.weights` says in words, without its columns: fading counts over fading spans, an index over
who reports, errors of chance and of drift. Drift stays what it is before it is measured: that takes more
hosts than this is for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil, exp, expm1, inf, sqrt
from typing import NamedTuple

PPM = 1_000_000
MEMORY_MS, SAMPLE_MS = 300_000, 10_000
DEVIATIONS = 3
DRIFT_SD = 0.05  # over a memory
SOLID_EVENTS = 20  # of a count that chance is learnt from


class Told(NamedTuple):
    """`goes_on`: the report before ended where this one begins."""

    host: str
    events: int
    latest_ms: int
    goes_on: bool


class Weighed(NamedTuple):
    """One host that counts: its estimated rate, and what it is at most; infinite where nothing is known."""

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
    moved: bool = False

    @property
    def rate(self) -> float:
        return self.events / self.span_ms if self.span_ms else 0.0


@dataclass
class SlowRates:
    """Of one source. Hosts keep their counts when they leave."""

    dispersion: float = 1.0
    counts: dict[str, Count] = field(default_factory=dict)
    index: float = 1.0
    mean: float = 0.0
    large: float = 0.0
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
            if count.since_ms is None or not told.goes_on:
                count.since_ms = max(told.latest_ms, count.since_ms or told.latest_ms)
                count.pending = 0.0
            else:
                count.pending += told.events
            if told.latest_ms >= count.since_ms + SAMPLE_MS:
                ready.append((count, told.latest_ms))
        self._learn_dispersion(ready)
        for count, latest_ms in ready:
            assert count.since_ms is not None
            span_ms = latest_ms - count.since_ms
            fading = exp(-span_ms / MEMORY_MS)
            count.events = count.events * fading + count.pending
            count.span_ms = count.span_ms * fading + span_ms
            count.since_ms, count.pending, count.moved = latest_ms, 0.0, True
            count.index_at = self.index

    def _learn_dispersion(self, ready: Iterable[tuple[Count, int]]) -> None:
        squares = variances = 0.0
        solid = 0
        for count, latest_ms in ready:
            if count.events < SOLID_EVENTS:
                continue
            assert count.since_ms is not None
            expected = count.rate * (latest_ms - count.since_ms)
            squares += (count.pending - expected) ** 2
            variances += expected + expected**2 / (2 * count.events)
            solid += 1
        if solid:
            ratio = min(max(squares / variances, 1.0), 100.0)
            self.dispersion += min(solid / 2000, 0.2) * (ratio - self.dispersion)

    def estimate(self, hosts: Sequence[str], now_ms: int) -> dict[str, tuple[float, float]]:
        """Host → (events per ms, the largest that they may be)."""
        if self.ticked_ms is None or now_ms >= self.ticked_ms + SAMPLE_MS:
            self._tick(now_ms)
        return {host: self._estimate(self.counts.get(host, Count()), now_ms) for host in hosts}

    def _estimate(self, count: Count, now_ms: int) -> tuple[float, float]:
        if self.mean <= 0:
            return 1.0, inf
        if not count.span_ms:
            return self.mean, self.mean * max(self.large / self.mean, exp(DEVIATIONS * DRIFT_SD))
        assert count.since_ms is not None
        events = count.events + 1
        rate = events / (count.span_ms + 1 / self.mean) * self.index / (count.index_at or 1.0)
        silent_ms = max(now_ms - count.since_ms, 0)
        variance = self.dispersion / events + DRIFT_SD**2 / MEMORY_MS * (MEMORY_MS / 2 + silent_ms)
        return rate, rate * (1 + expm1(min(DEVIATIONS * sqrt(variance), 5.0)))

    def _tick(self, now_ms: int) -> None:
        both = [one for one in self.counts.values() if one.moved and one.rate_at_tick > 0]
        if both:
            grown = sum(one.rate for one in both) / sum(one.rate_at_tick for one in both)
            self.index *= max(grown, 1e-6)
        for one in self.counts.values():
            one.index_at = self.index if one.moved else one.index_at
            one.rate_at_tick, one.moved = one.rate, False
        known = sorted(one.rate for one in self.counts.values() if one.span_ms)
        self.mean = sum(known) / len(known) if known else 0.0
        self.large = _quantile(known, 0.99) if known else 0.0
        self.ticked_ms = now_ms


def deficit_mark(hosts: Sequence[Weighed], missing_ppm: int, window_ms: int, dispersion: float) -> int | None:
    """The last instant at which what may be missing of the window that ends there is within the bound; None
    before everything."""
    known = [one.latest_ms for one in hosts if one.latest_ms is not None]
    least = _least_total(hosts)
    if not known:
        return None
    if least <= 0:
        return min(known) if len(known) == len(hosts) else None
    half = DEVIATIONS * sqrt(dispersion) / 2
    events = least * window_ms
    allowed = (sqrt(events * missing_ppm / PPM + half**2) - half) ** 2

    def fits(mark_ms: int) -> bool:
        return _missing_at_most(hosts, mark_ms, window_ms, least) <= allowed

    if not fits(min(known)):
        return None
    return max(known) if fits(max(known)) else _last(fits, min(known), max(known))


def stated_ppm(hosts: Sequence[Weighed], mark_ms: int, window_ms: int, dispersion: float) -> tuple[int, int]:
    """Of a window that closes at the mark: the share that is expected to be missing, and the bound of it."""
    late = [one for one in hosts if one.latest_ms is None or one.latest_ms < mark_ms]
    if not late:
        return 0, 0
    total, least = sum(one.rate for one in hosts), _least_total(hosts)
    expected = sum(one.rate * _owed(one, mark_ms, window_ms) for one in late) / (total * window_ms)
    if least <= 0 or any(one.most == inf for one in late):
        return _ppm(expected), PPM
    most = _missing_at_most(late, mark_ms, window_ms, least)
    return _ppm(expected), _ppm((most + DEVIATIONS * sqrt(dispersion * most)) / (least * window_ms))


def _missing_at_most(hosts: Iterable[Weighed], mark_ms: int, window_ms: int, least: float) -> float:
    return sum(min(one.most, least) * _owed(one, mark_ms, window_ms) for one in hosts)


def _owed(host: Weighed, mark_ms: int, window_ms: int) -> int:
    return window_ms if host.latest_ms is None else min(max(mark_ms - host.latest_ms, 0), window_ms)


def _least_total(hosts: Sequence[Weighed]) -> float:
    """Errors of hosts are independent. Those of which nothing is known may have no events."""
    known = [one for one in hosts if one.most < inf]
    spread = sqrt(sum((one.most - one.rate) ** 2 for one in known))
    return max(sum(one.rate for one in known) - spread, 0.0)


def _last(fits: Callable[[int], bool], low: int, high: int) -> int:
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _quantile(in_order: Sequence[float], share: float) -> float:
    place = share * (len(in_order) - 1)
    below = min(int(place), len(in_order) - 2)
    if below < 0:
        return in_order[0]
    return in_order[below] + (in_order[below + 1] - in_order[below]) * (place - below)


def _ppm(share: float) -> int:
    return min(ceil(share * PPM - 1e-6), PPM)
