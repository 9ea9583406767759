"""A limit on bytes per second that holds over every stretch of copying, without bursts."""

from __future__ import annotations

from collections.abc import Callable

from rtolap.base.clock import Clock


class CopyRate:
    """The rate of a thread that copies files.

    `pause` waits the given number of seconds, or less if the process is being stopped.
    """

    def __init__(self, bytes_per_s: int, clock: Clock, pause: Callable[[float], object]) -> None:
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._pause = pause
        self._free_at_s = clock.monotonic_s()

    def spend(self, size_bytes: int) -> None:
        """Count copied bytes, and wait until more may be copied."""
        now_s = self._clock.monotonic_s()
        self._free_at_s = max(self._free_at_s, now_s) + size_bytes / self._bytes_per_s
        self._pause(self._free_at_s - now_s)
