"""Scenarios of what goes wrong. Each takes a seed and a number of hosts, and gives a fleet."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from benchmarks.watermark_accuracy.fleet import FAULT_MS, MINUTE_MS, Fleet, fleet

PARTITIONS = 64


def _some(seed: int, hosts: int, ppm: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed + 1).choice(hosts, max(hosts * ppm // 1_000_000, 1), replace=False)


def _stall(fleet: Fleet, seed: int, ppm: int, minutes: int) -> Fleet:
    hosts = _some(seed, fleet.hosts, ppm)
    begin = np.full(hosts.size, FAULT_MS)
    fleet.stall(hosts, begin, np.full(hosts.size, minutes * MINUTE_MS), speed=10)
    return fleet


def no_fault(seed: int, hosts: int) -> Fleet:
    return fleet(seed, hosts, PARTITIONS)


def few_stalled(seed: int, hosts: int) -> Fleet:
    """Stall 0.1 % of the hosts for 20 minutes."""
    return _stall(no_fault(seed, hosts), seed, 1_000, 20)


def many_staggered(seed: int, hosts: int) -> Fleet:
    """Stall 5 % of the hosts, beginning within ten minutes, for 2 to 12 minutes each."""
    stalled, rng = no_fault(seed, hosts), np.random.default_rng(seed + 2)
    some = _some(seed, hosts, 50_000)
    begin = FAULT_MS + rng.integers(0, 10 * MINUTE_MS, some.size)
    stalled.stall(some, begin, rng.integers(2 * MINUTE_MS, 12 * MINUTE_MS, some.size), speed=10)
    return stalled


def partitions_out(seed: int, hosts: int) -> Fleet:
    """Take 3 of 64 partitions out for ten minutes."""
    stalled = no_fault(seed, hosts)
    some = np.flatnonzero(np.isin(stalled.partition, (5, 20, 41)))
    stalled.stall(some, np.full(some.size, FAULT_MS), np.full(some.size, 10 * MINUTE_MS), speed=10)
    return stalled


def restarts(seed: int, hosts: int) -> Fleet:
    """Restart hosts in five waves ten minutes apart, 0.4 % of the hosts each: two minutes, then a slow
    backlog."""
    stalled = no_fault(seed, hosts)
    for wave in range(5):
        some = _some(seed + 10 * wave, hosts, 4_000)
        begin = np.full(some.size, FAULT_MS + wave * 10 * MINUTE_MS)
        stalled.stall(some, begin, np.full(some.size, 2 * MINUTE_MS), speed=3)
    return stalled


def skewed(seed: int, hosts: int) -> Fleet:
    """Spread rates over five orders of magnitude; 0.1 % of the hosts stall for 20 minutes, one of the largest
    among them."""
    skewed_fleet = _stall(fleet(seed, hosts, PARTITIONS, skew=1.8), seed, 1_000, 20)
    large = np.argsort(skewed_fleet.rates)[-10:-9]
    skewed_fleet.stall(large, np.array([FAULT_MS]), np.array([20 * MINUTE_MS]), speed=10)
    return skewed_fleet


def drifting(seed: int, hosts: int) -> Fleet:
    """Let every host's rate walk by a fifth in five minutes; 0.1 % of the hosts stall for 20 minutes."""
    return _stall(fleet(seed, hosts, PARTITIONS, drift=0.2), seed, 1_000, 20)


def clock_jumps(seed: int, hosts: int) -> Fleet:
    """Put 0.05 % of the clocks two minutes ahead for ten minutes, and as many two minutes behind."""
    jumping = no_fault(seed, hosts)
    some = _some(seed, hosts, 1_000)
    half = some.size // 2
    jumping.wrong_clock(some[:half], FAULT_MS, 10 * MINUTE_MS, 2 * MINUTE_MS)
    jumping.wrong_clock(some[half:], FAULT_MS, 10 * MINUTE_MS, -2 * MINUTE_MS)
    return jumping


def rise_with_backlog(seed: int, hosts: int) -> Fleet:
    """Let all rates rise four-fold within 30 minutes. As that begins, 0.3 % of the hosts stall for 12
    minutes; their backlog comes in twice as fast as it was logged, of an earlier time of the day."""

    def growth(at_ms: NDArray[np.int64]) -> NDArray[np.float64]:
        risen: NDArray[np.float64] = 4.0 ** np.clip((at_ms - FAULT_MS) / (30 * MINUTE_MS), 0, 1)
        return risen

    rising = fleet(seed, hosts, PARTITIONS, growth=growth)
    some = _some(seed, hosts, 3_000)
    begin = FAULT_MS + np.random.default_rng(seed + 2).integers(0, 2 * MINUTE_MS, some.size)
    rising.stall(some, begin, np.full(some.size, 12 * MINUTE_MS), speed=2)
    return rising


def _jump(seed: int, hosts: int, counted_ms: int) -> Fleet:
    some = _some(seed, hosts, 1_000)

    def growth(at_ms: NDArray[np.int64]) -> NDArray[np.float64]:
        grown = np.ones(at_ms.shape)
        grown[some] = np.where(at_ms[some] >= FAULT_MS, 10.0, 1.0)
        return grown

    jumping = fleet(seed, hosts, PARTITIONS, growth=growth)
    begin = np.full(some.size, FAULT_MS + counted_ms)
    jumping.stall(some, begin, np.full(some.size, 20 * MINUTE_MS), speed=10)
    return jumping


def jump_then_stall(seed: int, hosts: int) -> Fleet:
    """Let 0.1 % of the hosts log ten times as much, and stall for 20 minutes after two minutes of that."""
    return _jump(seed, hosts, 2 * MINUTE_MS)


def jump_at_stall(seed: int, hosts: int) -> Fleet:
    """Do the same, but stall them as it begins: it has not been seen."""
    return _jump(seed, hosts, 0)


def wakes_at_stall(seed: int, hosts: int) -> Fleet:
    """Let 0.1 % of the hosts log nothing but heartbeats, then thirty times what others log. At that moment
    they stall, for 3 to 20 minutes."""
    rng = np.random.default_rng(seed + 3)
    some = _some(seed, hosts, 1_000)
    wakes = FAULT_MS + rng.integers(0, 10 * MINUTE_MS, some.size)

    def growth(at_ms: NDArray[np.int64]) -> NDArray[np.float64]:
        grown = np.ones(at_ms.shape)
        grown[some] = np.where(at_ms[some] >= wakes[:, None], 30.0, 0.0)
        return grown

    waking = fleet(seed, hosts, PARTITIONS, growth=growth)
    waking.stall(some, wakes, rng.integers(3 * MINUTE_MS, 20 * MINUTE_MS, some.size), speed=10)
    return waking


def large_newcomer(seed: int, hosts: int) -> Fleet:
    """Let a new host log 30 % of all events. It is listed a minute before it begins; for ten minutes it comes
    in two minutes late."""

    def growth(at_ms: NDArray[np.int64]) -> NDArray[np.float64]:
        grown = np.ones(at_ms.shape)
        grown[0] = np.where(at_ms[0] >= FAULT_MS, large, 0.0)
        return grown

    rates = no_fault(seed, hosts).rates
    large = 0.3 / 0.7 * rates[1:].sum() / rates[0]
    with_newcomer = fleet(seed, hosts, PARTITIONS, growth=growth)
    with_newcomer.join(0, FAULT_MS - MINUTE_MS, FAULT_MS, 2 * MINUTE_MS, 10 * MINUTE_MS)
    return with_newcomer


SCENARIOS: dict[str, Callable[[int, int], Fleet]] = {
    "no fault": no_fault,
    "0.1 % stalled": few_stalled,
    "5 % stalled, staggered": many_staggered,
    "3 partitions out": partitions_out,
    "restarts with backlog": restarts,
    "skewed rates": skewed,
    "drifting rates": drifting,
    "clock jumps": clock_jumps,
    "rate rise, backlog": rise_with_backlog,
    "ten-fold jump, then stall": jump_then_stall,
    "ten-fold jump at the stall": jump_at_stall,
    "wakes at the stall": wakes_at_stall,
    "new host of 30 %, lagging": large_newcomer,
}

# By how many times more than stated may be missing. A host's change as it falls silent is not seen: it may
# miss as many times more as its rate has grown, and without end if it had logged nothing. Such windows are
# reported as breached once their events are there.
TIMES_STATED = {"ten-fold jump at the stall": 10.0, "wakes at the stall": float("inf")}
