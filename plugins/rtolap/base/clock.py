"""Time as a constructor argument, so that tests own it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for records and people, monotonic time for deadlines."""

    def now_ms(self) -> int: ...

    def monotonic_s(self) -> float: ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that stands still until it is advanced."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_s(self) -> float:
        return self._now_ms / 1000

    def advance_ms(self, delta_ms: int) -> None:
        if delta_ms < 0:
            raise ValueError(f"a clock does not run backwards (asked for {delta_ms} ms)")
        self._now_ms += delta_ms
