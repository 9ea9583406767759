"""Estimates of how many events a host logs: made online, with the error of the estimate.

Rates are per event time, so a backlog that comes in fast counts as what it was. Per host an exponentially
fading count over an equally fading span; the last few minutes matter (`memory_ms`). Where a sample is beyond
what chance explains by the count so far, a host has changed: the count starts over with that sample.

A host that stands still is extrapolated from before it did: its rate is multiplied by what the rates of the
others have changed since the event time of its counts (`rate_index`, learnt from hosts that are near the
largest event time, so that a daily shape does not look like an error), and its error grows with the time:
Var = dispersion / events counted + drift · (memory / 2 + time since). `drift`, the variance per ms by which
a host's rate walks away from the index, and `dispersion`, variance over mean of counts, are estimated over
all hosts. Of a host that was never counted nothing is known, nor is of what was logged before the index
begins. Nothing is known of a change of rate after a host has fallen silent: the drift of the others
stands for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rtolap.watermark.missing import DEVIATIONS
from rtolap.watermark.rate_index import RateIndex
from rtolap.watermark.snapshot import NEVER, Indices, Instants, Mask, Rates

_DRIFT_SD = 0.05  # over a memory, until it has been measured
_DRIFT_HOSTS_MIN = 30
_DRIFT_EVENTS_MIN = 20.0
_DRIFT_GAIN = 0.3
_LOG_ERROR_MAX = 5.0
_DISPERSION_MAX = 100.0
_CHANGE_DEVIATIONS = 4.5  # of the square root of a sample's count: one of some 300 000 samples by chance
# A walk, seen through a fading memory m, moves within m by (1 − (1 − 1/e)) of its variance; chance in the two
# counts compared adds 2 · (1 − 1/e) / 2 of dispersion / events.
_WALK_SEEN = float(np.exp(-1.0))
_CHANCE_SEEN = 1.0 - _WALK_SEEN


@dataclass(frozen=True, slots=True)
class Estimate:
    """Columns of a Snapshot. Infinite errors of hosts that have never been counted."""

    events_per_ms: Rates
    relative_error: Rates
    dispersion: float


@dataclass(slots=True)
class HostRates:
    """Event rates of hosts 0 … N−1 (`grow` adds more).

    Attributes:
        sample_ms: counts are taken in over at least so much event time.
    """

    hosts: int
    memory_ms: int = 300_000
    sample_ms: int = 10_000
    dispersion: float = 1.0
    _index: RateIndex = field(init=False)
    _drift_per_ms: float = field(init=False)
    _mean: float = 0.0
    _ticked_ms: int = NEVER
    _marked_ms: int = NEVER
    _columns: dict[str, NDArray[np.float64]] = field(init=False)
    _since_ms: Instants = field(init=False)
    _ticked_since_ms: Instants = field(init=False)

    def __post_init__(self) -> None:
        self._index = RateIndex(self.sample_ms)
        self._drift_per_ms = _DRIFT_SD**2 / self.memory_ms
        names = ("events", "span", "pending", "index_at", "ticked", "marked", "moved")
        self._columns = {name: np.zeros(self.hosts) for name in names}
        self._since_ms = np.full(self.hosts, NEVER, np.int64)
        self._ticked_since_ms = np.full(self.hosts, NEVER, np.int64)

    def grow(self, hosts: int) -> None:
        more = hosts - self.hosts
        if more <= 0:
            return
        new = np.zeros(more)
        self._columns = {name: np.concatenate((column, new)) for name, column in self._columns.items()}
        self._since_ms = np.concatenate((self._since_ms, np.full(more, NEVER)))
        self._ticked_since_ms = np.concatenate((self._ticked_since_ms, np.full(more, NEVER)))
        self.hosts += more

    def keep(self, hosts: Indices) -> None:
        """Keep only these hosts, in this order: their indices change."""
        self._columns = {name: column[hosts] for name, column in self._columns.items()}
        self._since_ms = self._since_ms[hosts]
        self._ticked_since_ms = self._ticked_since_ms[hosts]
        self.hosts = int(hosts.size)

    @property
    def nbytes(self) -> int:
        instants = self._since_ms.nbytes + self._ticked_since_ms.nbytes
        return sum(column.nbytes for column in self._columns.values()) + instants + self._index.nbytes

    def observe(
        self,
        hosts: NDArray[np.integer],
        events: NDArray[np.integer],
        latest_ms: Instants,
        goes_on: Mask | None = None,
    ) -> None:
        """Note how many events each of these hosts logged since the last report, up to that instant.

        What comes before a host's first instant has no known beginning and is left out; so it is where a host
        does not `goes_on` (all do, if None): what was counted may be among it, so its count starts over. So
        does one of before the index.
        """
        hosts, events, latest_ms, goes_on = _once_each(hosts, events, latest_ms, goes_on)
        columns = self._columns
        since_ms = self._since_ms[hosts]
        begins = since_ms < max(self._index.from_ms, NEVER + 1)
        if goes_on is not None:
            begins |= ~goes_on
        pending = columns["pending"][hosts] + events
        if begins.any():
            since_ms[begins] = np.maximum(since_ms[begins], latest_ms[begins])
            pending[begins] = 0.0
            self._since_ms[hosts] = since_ms
        columns["pending"][hosts] = pending
        ready = (since_ms != NEVER) & (latest_ms >= np.maximum(since_ms, 0) + self.sample_ms)
        if ready.any():
            self._count(hosts[ready], pending[ready], since_ms[ready], latest_ms[ready])

    def _count(
        self, hosts: NDArray[np.integer], pending: Rates, since_ms: Instants, latest_ms: Instants
    ) -> None:
        columns = self._columns
        span = (latest_ms - since_ms).astype(np.float64)
        # A count stands for the instant a memory behind its end; that of a long sample is half of it behind.
        behind_ms = np.maximum(span / 2 - self.memory_ms, 0.0).astype(np.int64)
        index = self._index.at(latest_ms - behind_ms)
        grown = index / np.where(columns["index_at"][hosts] > 0, columns["index_at"][hosts], index)
        changed = self._learn_dispersion(
            columns["events"][hosts], columns["span"][hosts], pending, span, grown
        )
        fading = np.where(changed, 0.0, np.exp(-span / self.memory_ms))
        columns["events"][hosts] = columns["events"][hosts] * fading + pending
        columns["span"][hosts] = columns["span"][hosts] * fading + span
        columns["pending"][hosts] = 0.0
        columns["moved"][hosts] = 1.0
        columns["index_at"][hosts] = index
        columns["ticked"][hosts[changed]] = 0.0  # a change of its own has no meaning for the others
        self._since_ms[hosts] = latest_ms

    def shift(self, step_ms: int) -> None:
        """Move the times of `estimate`, because the clock was set. Event times stay."""
        self._ticked_ms += step_ms if self._ticked_ms != NEVER else 0
        self._marked_ms += step_ms if self._marked_ms != NEVER else 0

    def estimate(self, now_ms: int) -> Estimate:
        """Return the rates as they are to be expected by now. Call it about once a second: it also keeps the
        index."""
        if self._ticked_ms == NEVER or now_ms >= self._ticked_ms + self.sample_ms:
            self._tick(now_ms)
        counted = self._columns["span"] > 0
        if self._mean <= 0:
            return Estimate(np.ones(self.hosts), np.full(self.hosts, np.inf), self.dispersion)
        # One event more, as a host of the mean rate would have, keeps silent hosts from weighing nothing.
        events = self._columns["events"] + 1.0
        rates = events / (self._columns["span"] + 1.0 / self._mean)
        index_at = self._columns["index_at"]
        index = self._index.latest
        rates = np.where(counted, rates * index / np.where(index_at > 0, index_at, 1.0), self._mean)
        silent_ms = np.maximum(now_ms - np.where(counted, self._since_ms, now_ms), 0)
        variance = self.dispersion / events + self._drift_per_ms * (self.memory_ms / 2 + silent_ms)
        error = np.expm1(np.minimum(DEVIATIONS * np.sqrt(variance), _LOG_ERROR_MAX))
        return Estimate(rates, np.where(counted, error, np.inf), self.dispersion)

    @property
    def drift_sd(self) -> float:
        """Relative standard deviation by which a host's rate walks away from the others' within a memory."""
        return float(np.sqrt(self._drift_per_ms * self.memory_ms))

    def _tick(self, now_ms: int) -> None:
        columns = self._columns
        counted = columns["span"] > 0
        rates = np.divide(columns["events"], columns["span"], where=counted, out=np.zeros(self.hosts))
        self._learn_index(rates, columns["moved"] > 0)
        columns["ticked"], columns["moved"] = rates, np.zeros(self.hosts)
        self._ticked_since_ms = self._since_ms.copy()
        known = rates[counted]
        self._mean = float(known.mean()) if known.size else 0.0
        self._ticked_ms = now_ms
        if self._marked_ms == NEVER or now_ms >= self._marked_ms + self.memory_ms:
            self._learn_drift(rates, counted, now_ms)

    def _learn_index(self, rates: Rates, moved: Mask) -> None:
        """Learn from hosts that were near the largest event time then and are now: what others log is of
        another time."""
        if not moved.any():
            return
        front_ms = int(self._since_ms[moved].max())
        near_ms = self.memory_ms // 2
        if self._index.front_ms == NEVER:
            self._index.begin(front_ms - self.memory_ms, front_ms)
        former_ms = self._index.front_ms
        front_ms = max(front_ms, former_ms)
        both = moved & (self._columns["ticked"] > 0) & (self._since_ms >= front_ms - near_ms)
        both &= self._ticked_since_ms >= former_ms - near_ms
        before = float(self._columns["ticked"][both].sum())
        grown = max(float(rates[both].sum()) / before, 1e-6) if before > 0 else 1.0
        self._index.advance(front_ms, grown)
        ahead = moved & (self._since_ms >= former_ms)  # they were counted before the index was there
        self._columns["index_at"][ahead] = self._index.at(self._since_ms[ahead])

    def _learn_drift(self, rates: Rates, counted: Mask, now_ms: int) -> None:
        """Learn how far hosts have walked away from the index since the last mark, less what chance
        explains."""
        columns = self._columns
        relative = np.where(counted, rates / np.where(columns["index_at"] > 0, columns["index_at"], 1.0), 0.0)
        current = now_ms - self._since_ms < self.memory_ms // 2
        use = (columns["marked"] > 0) & (columns["events"] >= _DRIFT_EVENTS_MIN) & (relative > 0) & current
        if np.count_nonzero(use) >= _DRIFT_HOSTS_MIN and now_ms < self._marked_ms + 2 * self.memory_ms:
            steps = np.log(relative[use] / columns["marked"][use])
            chance = self.dispersion * _CHANCE_SEEN / columns["events"][use]
            walked = max(float(np.mean(np.minimum(steps**2, 4.0) - chance)), 0.0)
            measured = walked / (_WALK_SEEN * self.memory_ms)
            self._drift_per_ms += _DRIFT_GAIN * (measured - self._drift_per_ms)
        long_enough = columns["events"] >= _DRIFT_EVENTS_MIN
        columns["marked"] = np.where(long_enough & current, relative, 0.0)
        self._marked_ms = now_ms

    def _learn_dispersion(
        self, events: Rates, span: Rates, pending: Rates, sample: Rates, grown: Rates
    ) -> Mask:
        """Return the hosts that have changed: whose sample is larger than chance explains. The others teach
        the dispersion."""
        expected = np.divide(events, span, where=span > 0, out=np.zeros(span.size)) * sample * grown
        # The estimate it is compared with is uncertain too, which adds expected² / events.
        uncertain = 1.0 + expected / (events + 1.0)
        beyond = 2.0 * (np.sqrt(pending + 0.375) - np.sqrt(expected + 0.375))
        changed: Mask = (span > 0) & (beyond > _CHANGE_DEVIATIONS * np.sqrt(self.dispersion * uncertain))
        solid = (events >= _DRIFT_EVENTS_MIN) & (span > 0) & ~changed
        if solid.any():
            expected, events = expected[solid], events[solid]
            # Of a count that fades, half of that.
            variance = expected + expected**2 / (2 * events)
            ratio = float(np.sum((pending[solid] - expected) ** 2) / np.sum(variance))
            gain = min(np.count_nonzero(solid) / 2000.0, 0.2)
            self.dispersion += gain * (min(max(ratio, 1.0), _DISPERSION_MAX) - self.dispersion)
        return changed


def _once_each(
    hosts: NDArray[np.integer], events: NDArray[np.integer], latest_ms: Instants, goes_on: Mask | None
) -> tuple[NDArray[np.integer], NDArray[np.integer], Instants, Mask | None]:
    """Merge repetitions: a host that stands in a report more than once logged all of it, up to its largest
    instant."""
    if hosts.size < 2 or int(np.bincount(hosts).max()) == 1:
        return hosts, events, latest_ms, goes_on
    once, place = np.unique(hosts, return_inverse=True)
    total, largest_ms = np.zeros(once.size, np.int64), np.full(once.size, NEVER)
    np.add.at(total, place, events)
    np.maximum.at(largest_ms, place, latest_ms)
    if goes_on is None:
        return once, total, largest_ms, None
    all_go_on = np.ones(once.size, np.bool_)
    np.logical_and.at(all_go_on, place, goes_on)
    return once, total, largest_ms, all_go_on
