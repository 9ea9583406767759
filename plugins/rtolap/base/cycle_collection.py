"""Python's collector of reference cycles, moved out of a process's data path.

A batch of records is tens of thousands of objects that refer to nothing and go with their last reference, but
each counts towards the next look for cycles, and every look stops all threads: in a receiver at full speed
30 % of its time. So the clock decides when to look: at what is new every few seconds, at everything every
few minutes. What a process has when it begins to serve is never looked at again.

Memory goes the same way. By default the C library takes each block of 128 KB from the system and gives it
back: for what decodes chunks of some hundred kilobytes that is every column of each, with a fault for every
page. So blocks of some megabytes stay with the process, and what is free is given back now and then: after a
replay the arenas of threads that read may hold a hundred megabytes.
"""

from __future__ import annotations

import ctypes
import gc
import os
import threading

from rtolap.base.clock import Clock
from rtolap.base.stopping import AWAKE_EVERY_S

YOUNG_EVERY_S = 10.0
ALL_EVERY_S = 300.0
TRIM_EVERY_S = 10.0
NEW_OBJECTS_MAX = 500_000  # more are looked at sooner; a batch being read has fewer
_YOUNG, _ALL = 1, 2
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # numbers of malloc.h
BLOCK_BYTES_MAX = 8 << 20  # larger ones come from the system each time
FREE_BYTES_MAX = 16 << 20  # at the end of an arena; more goes back at once
ARENAS_MAX = 4  # by default eight times as many as the host has cores

_LIBRARY = ctypes.CDLL(None)
_GLIBC = _LIBRARY if hasattr(_LIBRARY, "malloc_trim") else None  # others know none of this


def keep_blocks(bytes_max: int = BLOCK_BYTES_MAX) -> None:
    """Have the process keep blocks of up to `bytes_max` that it has freed, and give back larger ones.

    Without it the C library raises that bound to 32 MiB as such blocks are freed. Memory that grows then
    leaves holes behind that nobody gives back.
    """
    if _GLIBC is not None:
        _GLIBC.mallopt(_MMAP_THRESHOLD, bytes_max)
        _GLIBC.mallopt(_TRIM_THRESHOLD, FREE_BYTES_MAX)


def share_arenas(arenas_max: int = ARENAS_MAX) -> None:
    """Have the threads of the process share a few arenas. Call it before the first of them starts.

    Threads that have an arena each keep what each has freed, and none of them uses what is free of another.
    A bound of the environment (`MALLOC_ARENA_MAX`) stands.
    """
    if _GLIBC is not None and "MALLOC_ARENA_MAX" not in os.environ:
        _GLIBC.mallopt(_ARENA_MAX, arenas_max)


class CycleCollection:
    """Collection of cycles by the main thread of a process, which does nothing else once the process
    serves."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._young_s = self._all_s = self._trimmed_s = clock.monotonic_s()

    def begin(self) -> None:
        """Stop automatic collection: from now on memory is given back only by `collect_if_due`."""
        keep_blocks()
        gc.disable()
        gc.collect()
        gc.freeze()
        self._young_s = self._all_s = self._clock.monotonic_s()

    def collect_if_due(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._all_s >= ALL_EVERY_S:
            gc.collect(_ALL)
            self._all_s = self._young_s = now_s
        elif now_s - self._young_s >= YOUNG_EVERY_S or gc.get_count()[0] > NEW_OBJECTS_MAX:
            gc.collect(_YOUNG)
            self._young_s = now_s
        if _GLIBC is not None and now_s - self._trimmed_s >= TRIM_EVERY_S:
            _GLIBC.malloc_trim(0)  # beside the interpreter's lock
            self._trimmed_s = self._clock.monotonic_s()

    def collect_until(self, stopping: threading.Event) -> None:
        """Wait like `stopping.wait_awake`, and collect meanwhile."""
        self.begin()
        while not stopping.wait(AWAKE_EVERY_S):
            self.collect_if_due()
