"""Time that stands still until a test advances it."""

from __future__ import annotations


class ManualClock:
    """A clock that stands still until it is advanced."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = self._monotonic_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_s(self) -> float:
        return self._monotonic_ms / 1000

    def advance_ms(self, delta_ms: int) -> None:
        if delta_ms < 0:
            raise ValueError(f"a clock does not run backwards (asked for {delta_ms} ms)")
        self._now_ms += delta_ms
        self._monotonic_ms += delta_ms

    def set_by_ms(self, step_ms: int) -> None:
        """Set the wall clock, as a time server does, or a machine that has slept."""
        self._now_ms += step_ms
