"""Time as a constructor argument, so that tests own it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for records and people, monotonic time for deadlines."""

    def now_ms(self) -> int: ...

    def monotonic_s(self) -> float: ...


_STEP_MS_MIN = 500  # less is a clock that is slewed, or an inexact look
_LOOK_S_MAX = 0.05  # for the two readings of a look; after a longer pause between them both are read again


class ClockSteps:
    """The steps of a wall clock: somebody or a time server sets it, or the machine sleeps. For one thread.

    Leases and silences of other processes are counted in wall time where people and other processes see them.
    When the clock is set, nobody has been silent for that long: what is counted moves by the step.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        _, self._ahead_ms = self._read()

    def look(self) -> tuple[int, int]:
        """Return the wall time in ms, and by how many ms it was set since the last look; mostly 0."""
        now_ms, ahead_ms = self._read()
        step_ms = ahead_ms - self._ahead_ms
        if abs(step_ms) < _STEP_MS_MIN:
            return now_ms, 0
        self._ahead_ms = ahead_ms
        return now_ms, step_ms

    def _read(self) -> tuple[int, int]:
        """Return the wall time, and by how much it is ahead of the monotonic time."""
        while True:
            before_s = self._clock.monotonic_s()
            now_ms = self._clock.now_ms()
            if self._clock.monotonic_s() - before_s <= _LOOK_S_MAX:
                return now_ms, now_ms - round(before_s * 1000)


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()
