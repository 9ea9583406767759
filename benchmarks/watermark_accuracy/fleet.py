"""A simulated fleet: hosts log events in batches of five seconds, which come in late, or later when
something fails.

All arrays are (host, batch). Batch k of a host holds its events of the five seconds before `sent_ms`; it is a
heartbeat too, so an idle host sends empty ones. Batches of a host come in in order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

START_MS = 1_700_000_000_000
BATCH_MS = 5_000
MINUTE_MS = 60_000
WARM_UP_MS, MEASURED_MS, TAIL_MS = 15 * MINUTE_MS, 60 * MINUTE_MS, 5 * MINUTE_MS
SPAN_MS = WARM_UP_MS + MEASURED_MS + TAIL_MS
FAULT_MS = START_MS + WARM_UP_MS + 10 * MINUTE_MS  # when most troubles begin
_DAY_MS = 1440 * MINUTE_MS

Matrix = NDArray[np.int64]
Indices = NDArray[np.int64]


@dataclass
class Fleet:
    """`stamp_ms` differs from `sent_ms` where a host's clock is wrong; `total` is cumulative along
    batches. A host is on the list from `listed_ms` on."""

    partitions: int
    rates: NDArray[np.float64]
    sent_ms: Matrix
    stamp_ms: Matrix
    arrival_ms: Matrix
    total: Matrix
    wrong_clocks: NDArray[np.int64]
    listed_ms: NDArray[np.int64]

    @property
    def hosts(self) -> int:
        return len(self.rates)

    @property
    def partition(self) -> NDArray[np.int64]:
        """Hosts of a partition stand together."""
        return np.arange(self.hosts) * self.partitions // self.hosts

    def stall(
        self, hosts: NDArray[np.int64], from_ms: NDArray[np.int64], for_ms: NDArray[np.int64], speed: float
    ) -> None:
        """Let nothing of these hosts come in for a while; then the backlog does, `speed` times as fast as
        logged."""
        sent, arrival = self.sent_ms[hosts], self.arrival_ms[hosts]
        begin, end = from_ms[:, None], (from_ms + for_ms)[:, None]
        backlog_ms = ((sent - begin) / speed).astype(np.int64)
        held = (arrival >= begin) & (sent < end + backlog_ms)
        arrival = np.where(held, np.maximum(arrival, end + backlog_ms), arrival)
        self.arrival_ms[hosts] = np.maximum.accumulate(arrival, axis=1)

    def join(self, host: int, listed_ms: int, first_ms: int, lag_ms: int, for_ms: int) -> None:
        """Let a host join that was not on the list before. Its first batch is that of `first_ms`, and all
        come in late for a while."""
        self.listed_ms[host] = listed_ms
        sent, arrival = self.sent_ms[host], self.arrival_ms[host]
        lagging = sent < first_ms + for_ms
        arrival = np.where(lagging, np.maximum(arrival, first_ms) + lag_ms, arrival)
        self.arrival_ms[host] = np.maximum.accumulate(arrival)

    def wrong_clock(self, hosts: NDArray[np.int64], from_ms: int, for_ms: int, by_ms: int) -> None:
        sent = self.sent_ms[hosts]
        wrong = (sent >= from_ms) & (sent < from_ms + for_ms)
        self.stamp_ms[hosts] = sent + np.where(wrong, by_ms, 0)
        self.wrong_clocks = np.union1d(self.wrong_clocks, hosts)


Growth = Callable[[Matrix], NDArray[np.float64]]


def fleet(
    seed: int,
    hosts: int,
    partitions: int,
    *,
    skew: float = 0.3,
    drift: float = 0.0,
    growth: Growth | None = None,
) -> Fleet:
    """Return a fleet. `skew`: sigma of the hosts' log-normal rates, about one event a second in the mean.
    `drift`: standard deviation by which each rate walks within five minutes. A daily shape is common to all.
    `growth`: by which factor the rates differ from that, given the instants of (host, batch); its shape, or
    one that spreads to it."""
    rng = np.random.default_rng(seed)
    batches = SPAN_MS // BATCH_MS
    rates = rng.lognormal(-skew * skew / 2, skew, hosts) / 1000
    sent = START_MS + rng.integers(0, BATCH_MS, (hosts, 1)) + np.arange(batches) * BATCH_MS
    shape = 1 + 0.4 * np.sin(2 * np.pi * (sent[0] - START_MS) / _DAY_MS)
    expected = rates[:, None] * BATCH_MS * shape
    if growth is not None:
        expected *= growth(sent)
    if drift:
        steps = rng.normal(0, drift * np.sqrt(BATCH_MS / (5 * MINUTE_MS)), (hosts, batches))
        expected *= np.exp(np.cumsum(steps, axis=1))
    total = np.cumsum(rng.poisson(expected), axis=1)
    late_ms = 300 + rng.exponential(700, (hosts, batches))
    late_ms += np.where(rng.random((hosts, batches)) < 0.002, rng.exponential(10_000, (hosts, batches)), 0)
    arrival = np.maximum.accumulate(sent + late_ms.astype(np.int64), axis=1)
    right, always = np.empty(0, np.int64), np.full(hosts, START_MS)
    return Fleet(partitions, rates, sent, sent.copy(), arrival, total, right, always)
