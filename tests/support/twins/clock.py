"""Time that stands still until a test advances it."""

from __future__ import annotations


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
