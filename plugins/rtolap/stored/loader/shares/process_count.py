"""How many processes the lag asks for. Pure.

    wanted    one process for each `lag_records` that have begun, from `min` to `max`
    up        once more than the present number was wanted for `up_after_ms`: as many as are wanted now
    down      once fewer were enough for `down_after_ms`, even for twice the lag: one less

Twice the lag: else a lag near a border would start and stop a process again and again. Down goes by one at a
time, because each step moves shares. An unknown lag changes nothing, and time without it does not count.
"""

from __future__ import annotations

from dataclasses import dataclass

from rtolap.model.loader import LoaderProcesses


@dataclass(frozen=True)
class CountState:
    """The number of processes, and since when another one is asked for.

    Attributes:
        number: processes that are wanted.
        above_since_ms: since when the lag has asked for more; None while it does not.
        below_since_ms: since when fewer have been enough; None while they are not.
    """

    number: int
    above_since_ms: int | None = None
    below_since_ms: int | None = None


def first_count(policy: LoaderProcesses, number: int | None) -> CountState:
    """Return the state to begin with. `number`: what was wanted before; None for the minimum."""
    return CountState(_bounded(policy, number or policy.min))


def next_count(
    policy: LoaderProcesses, state: CountState, lag_records: int | None, now_ms: int
) -> CountState:
    """Return the state after a look at the lag; None where the lag is unknown.

    `now_ms`: of a clock that nobody sets.
    """
    number = _bounded(policy, state.number)
    if lag_records is None:
        return CountState(number)
    wanted, enough = _for_lag(policy, lag_records), _for_lag(policy, 2 * lag_records)
    if wanted > number:
        since_ms = now_ms if state.above_since_ms is None else state.above_since_ms
        if now_ms - since_ms >= policy.up_after_ms:
            return CountState(wanted)
        return CountState(number, above_since_ms=since_ms)
    if enough < number:
        since_ms = now_ms if state.below_since_ms is None else state.below_since_ms
        if now_ms - since_ms >= policy.down_after_ms:
            return CountState(number - 1)
        return CountState(number, below_since_ms=since_ms)
    return CountState(number)


def _for_lag(policy: LoaderProcesses, lag_records: int) -> int:
    return _bounded(policy, -(-lag_records // policy.lag_records))


def _bounded(policy: LoaderProcesses, number: int) -> int:
    return max(policy.min, min(policy.max, number))
