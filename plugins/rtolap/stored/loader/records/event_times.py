"""Up to which time of the records everything is in the table.

By the records' own timestamps, taken as growing within a partition, as brokers that stamp them have it; where
producers stamp out of order, a record may be older than this says. A partition of which nothing is left to
load holds nothing back.
"""

from __future__ import annotations

import threading

from rtolap.model.offsets import Offsets

Times = dict[int, int]


class EventTimes:
    """Thread-safe. Of this process: what an earlier one has loaded it does not know the times of."""

    def __init__(self) -> None:
        self._waiting: dict[int, Times] = {}
        self._latest: Times = {}
        self._lock = threading.Lock()

    def settled(self, sequence: int, latest_ms: Times) -> None:
        """Batch `sequence` is in the table; `latest_ms`: partition -> the largest timestamp in it."""
        with self._lock:
            self._waiting[sequence] = latest_ms

    def contiguous(self, sequence: int | None) -> None:
        """Every batch up to this one is in the table."""
        with self._lock:
            for ready in sorted(
                number for number in self._waiting if sequence is not None and number <= sequence
            ):
                for partition, latest_ms in self._waiting.pop(ready).items():
                    self._latest[partition] = max(latest_ms, self._latest.get(partition, latest_ms))

    def loaded_ms(self, loaded: Offsets, log_ends: Offsets | None, asked_ms: int) -> int | None:
        """`log_ends` as they were at `asked_ms` or later; None where that, or a time, is not known."""
        if log_ends is None:
            return None
        behind = [partition for partition, end in log_ends.items() if loaded.get(partition, 0) < end]
        with self._lock:
            if any(partition not in self._latest for partition in behind):
                return None
            # another record of the same millisecond may be among those that are left
            return min([asked_ms, *(self._latest[partition] - 1 for partition in behind)])
