"""Second by second: what has come in, what each rule says, and what is missing of the windows that close."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from rtolap.watermark.breaches import Breach, Breaches
from rtolap.watermark.hostlist import NO_LIMIT_MS
from rtolap.watermark.progress import SourceProgress
from rtolap.watermark.rules import Deficit, HostPrecise, Rule
from rtolap.watermark.snapshot import NEVER, SourceSnapshot
from rtolap.watermark.weights import HostRates

from benchmarks.watermark_accuracy.compared import GlobalMax, PartitionBounded, PartitionSnapshot
from benchmarks.watermark_accuracy.fleet import (
    BATCH_MS,
    MEASURED_MS,
    MINUTE_MS,
    SPAN_MS,
    START_MS,
    WARM_UP_MS,
    Fleet,
)

WINDOW_MS = 5 * MINUTE_MS
TICK_MS = 1_000
EVERY_MS = 10_000  # a window ends
ESTIMATED, KNOWN = "deficit 1e-4, estimated rates", "deficit 1e-4, true mean rates"
RULES: dict[str, Rule] = {
    "host-precise 99.9 %": HostPrecise(1_000),
    "host-precise 99.99 %": HostPrecise(100),
    ESTIMATED: Deficit(100, WINDOW_MS),
    KNOWN: Deficit(100, WINDOW_MS),
    "per partition, 30 s, idle 60 s": PartitionBounded(30_000, 60_000),
    "global maximum less 30 s": GlobalMax(30_000),
}


@dataclass
class Closed:
    """The windows that one rule closed: a value for each. `shares` of its events were not read then; of
    those, `unlogged_shares` had not been logged yet, by hosts whose clocks were behind. `breaches` are those
    that were reported, at the end of all; `ends_ms`: of the windows."""

    shares: list[float] = field(default_factory=list)
    unlogged_shares: list[float] = field(default_factory=list)
    delays_ms: list[int] = field(default_factory=list)
    bounds_ppm: list[int] = field(default_factory=list)
    open: int = 0
    ends_ms: list[int] = field(default_factory=list)
    breaches: tuple[Breach, ...] = ()


def simulate(fleet: Fleet, rules: Mapping[str, Rule] = RULES, tick_ms: int = TICK_MS) -> dict[str, Closed]:
    """Simulate windows of five minutes that end every ten seconds of the measured time."""
    progress, rates = SourceProgress(fleet.hosts), HostRates(fleet.hosts)
    inbox = Inbox(fleet)
    edges = np.searchsorted(fleet.partition, np.arange(fleet.partitions))
    heard_ms = np.full(fleet.partitions, START_MS)
    ends = np.arange(
        START_MS + WARM_UP_MS + WINDOW_MS, START_MS + WARM_UP_MS + MEASURED_MS, EVERY_MS
    ).tolist()
    nothing = np.full(fleet.hosts, -1)
    totals = [missing_events(fleet, nothing, end) for end in ends]
    nobody = np.zeros(fleet.hosts, np.bool_)
    closed_by_rule = {name: Closed() for name in rules}
    published = dict.fromkeys(rules, NEVER)
    late = {
        name: Breaches(rule.missing_events_ppm, WINDOW_MS)
        for name, rule in rules.items()
        if isinstance(rule, Deficit)
    }
    for now_ms in range(START_MS + MINUTE_MS, START_MS + SPAN_MS - MINUTE_MS, tick_ms):
        came, events = inbox.take(now_ms)
        if came.size:
            before_ms = progress.latest_of(came).copy()
            progress.apply(0, 1, came, fleet.stamp_ms[came, inbox.read[came]], now_ms)
            heard_ms[np.unique(fleet.partition[came])] = now_ms
            rates.observe(came, events, progress.latest_of(came))
            for breaches in late.values():
                breaches.observe(before_ms, progress.latest_of(came), events)
        listed = fleet.listed_ms <= now_ms
        estimate = rates.estimate(now_ms)
        latest = progress.latest_ms()
        snapshot = PartitionSnapshot(
            now_ms,
            (),
            latest,
            estimate.events_per_ms,
            estimate.relative_error,
            listed,
            nobody,
            estimate.dispersion,
            partition_latest_ms=np.maximum.reduceat(latest, edges),
            partition_idle_ms=now_ms - heard_ms,
        )
        known = SourceSnapshot(now_ms, (), latest, fleet.rates, np.zeros(fleet.hosts), listed, nobody)
        for name, rule in rules.items():
            decision = rule.decide(known if name == KNOWN else snapshot)
            if decision.watermark_ms is None or decision.watermark_ms <= published[name]:
                continue
            published[name] = decision.watermark_ms
            if name in late:
                late[name].published(decision.watermark_ms)
            closed = closed_by_rule[name]
            while len(closed.shares) < len(ends) and ends[len(closed.shares)] <= published[name]:
                end, total = ends[len(closed.shares)], totals[len(closed.shares)]
                closed.shares.append(missing_events(fleet, inbox.read, end) / total)
                closed.unlogged_shares.append(unlogged_events(fleet, end, now_ms) / total)
                closed.delays_ms.append(now_ms - end)
                closed.ends_ms.append(end)
                closed.bounds_ppm.append(decision.bound_ppm)
    for name, breaches in late.items():
        closed_by_rule[name].breaches = breaches.found()
    for closed in closed_by_rule.values():
        closed.open = len(ends) - len(closed.shares)
    return closed_by_rule


class Inbox:
    """What has come in. `read`: the last batch of each host, −1 for none."""

    def __init__(self, fleet: Fleet) -> None:
        self.read = np.full(fleet.hosts, -1)
        self._fleet = fleet
        self._next_ms = fleet.arrival_ms[:, 0].copy()

    def take(self, now_ms: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the hosts with new batches since the last call, and how many events of each have come in."""
        came = np.flatnonzero(self._next_ms <= now_ms)
        before, moving = self.read[came], came
        while moving.size:
            self.read[moving] += 1
            ended = self.read[moving] + 1 == self._fleet.arrival_ms.shape[1]
            self._next_ms[moving[ended]] = NO_LIMIT_MS
            moving = moving[~ended]
            self._next_ms[moving] = self._fleet.arrival_ms[moving, self.read[moving] + 1]
            moving = moving[self._next_ms[moving] <= now_ms]
        total = self._fleet.total
        first = np.where(before >= 0, total[came, before], 0)
        return came, total[came, self.read[came]] - first


def missing_events(fleet: Fleet, read: NDArray[np.int64], end_ms: int) -> float:
    """Return the events of the window that ends there and that are in no batch read so far."""
    start_ms = end_ms - WINDOW_MS
    read_ms = fleet.sent_ms[:, 0] + read * BATCH_MS
    seen_ms = np.clip(read_ms, start_ms, end_ms)
    missing = _logged(fleet, np.full(fleet.hosts, end_ms)) - _logged(fleet, seen_ms)
    wrong = fleet.wrong_clocks
    if wrong.size:  # their batches stand elsewhere than where they were sent
        events = _by_stamp(fleet, end_ms)
        later = np.arange(events.shape[1]) > read[wrong][:, None]
        missing[wrong] = np.where(later, events, 0.0).sum(axis=1)
    return float(missing.sum())


def unlogged_events(fleet: Fleet, end_ms: int, now_ms: int) -> float:
    """Return the events of that window in batches that hosts with a wrong clock begin only after now."""
    if not fleet.wrong_clocks.size:
        return 0.0
    begins_later = fleet.sent_ms[fleet.wrong_clocks] - BATCH_MS >= now_ms
    return float(np.where(begins_later, _by_stamp(fleet, end_ms), 0.0).sum())


def _by_stamp(fleet: Fleet, end_ms: int) -> NDArray[np.float64]:
    """Return, for each batch of the hosts with a wrong clock, its events of the window that ends there."""
    stamp = fleet.stamp_ms[fleet.wrong_clocks]
    overlap = np.minimum(stamp, end_ms) - np.maximum(stamp - BATCH_MS, end_ms - WINDOW_MS)
    events: NDArray[np.float64] = np.diff(fleet.total[fleet.wrong_clocks], axis=1, prepend=0) / BATCH_MS
    stamped: NDArray[np.float64] = events * np.maximum(overlap, 0)
    return stamped


def _logged(fleet: Fleet, until_ms: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the events of each host before an instant; within a batch they are spread evenly."""
    batch, rest_ms = np.divmod(until_ms - fleet.sent_ms[:, 0], BATCH_MS)
    hosts = np.arange(fleet.hosts)
    whole = fleet.total[hosts, batch]
    logged: NDArray[np.float64] = whole + (fleet.total[hosts, batch + 1] - whole) * (rest_ms / BATCH_MS)
    return logged
