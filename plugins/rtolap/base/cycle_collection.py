"""Python's collector of reference cycles, moved out of a process's data path.

A batch of records is tens of thousands of objects that refer to nothing and go with their last reference, but
each counts towards the next look for cycles, and every look stops all threads: in a receiver at full speed
30 % of its time. So the clock decides when to look: at what is new every few seconds, at everything every
few minutes. What a process has when it begins to serve is never looked at again.

Memory that is free but not given back to the system is given back now and then, too: after a replay the C
library alone may keep a hundred megabytes in the arenas of threads that read.
"""

from __future__ import annotations

import ctypes
import gc
import threading

from rtolap.base.clock import Clock
from rtolap.base.stopping import AWAKE_EVERY_S

YOUNG_EVERY_S = 10.0
ALL_EVERY_S = 300.0
TRIM_EVERY_S = 60.0
NEW_OBJECTS_MAX = 500_000  # more are looked at sooner; a batch being read has fewer
_YOUNG, _ALL = 1, 2


class CycleCollection:
    """For the main thread of a process, which does nothing else once the process serves."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._young_s = self._all_s = self._trimmed_s = clock.monotonic_s()
        library = ctypes.CDLL(None)
        self._trim = library.malloc_trim if hasattr(library, "malloc_trim") else None  # glibc alone has it

    def begin(self) -> None:
        """From now on nothing is collected but by `collect_if_due`."""
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
        if self._trim is not None and now_s - self._trimmed_s >= TRIM_EVERY_S:
            self._trim(0)  # beside the interpreter's lock
            self._trimmed_s = self._clock.monotonic_s()

    def collect_until(self, stopping: threading.Event) -> None:
        """Wait like `stopping.wait_awake`, and collect meanwhile."""
        self.begin()
        while not stopping.wait(AWAKE_EVERY_S):
            self.collect_if_due()
