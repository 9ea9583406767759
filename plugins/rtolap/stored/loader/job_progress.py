"""Progress and failures of a loader, for people and for metrics."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

from rtolap.base.clock import Clock
from rtolap.model.offsets import Offsets
from rtolap.stored.loader.window import Pending
from rtolap.stored.metastore.offsets import Loaded

_RATE_S = 60.0

Times = dict[int, int]  # partition -> instant


class EventTimes:
    """The record time up to which everything is in the table. Thread-safe.

    The records' own timestamps count. They are taken to ascend within a partition, as brokers that stamp
    records ensure. Where producers stamp out of order, a record may be older than the time says. A partition
    with nothing left to load holds nothing back. The times cover this process: those of records that an
    earlier process loaded are unknown.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, Times] = {}
        self._latest: Times = {}
        self._lock = threading.Lock()

    def settled(self, sequence: int, latest_ms: Times) -> None:
        """Note that batch `sequence` is in the table. `latest_ms` has the largest timestamp of each partition
        in it."""
        with self._lock:
            self._waiting[sequence] = latest_ms

    def contiguous(self, sequence: int | None) -> None:
        """Note that every batch up to this one is in the table."""
        with self._lock:
            for ready in sorted(
                number for number in self._waiting if sequence is not None and number <= sequence
            ):
                for partition, latest_ms in self._waiting.pop(ready).items():
                    self._latest[partition] = max(latest_ms, self._latest.get(partition, latest_ms))

    def loaded_ms(self, loaded: Offsets, log_ends: Offsets | None, read_ms: int) -> int | None:
        """Return up to which time everything is loaded; None where that, or a time, is unknown. `log_ends`
        are those at `read_ms` or later."""
        if log_ends is None:
            return None
        behind = [partition for partition, end in log_ends.items() if loaded.get(partition, 0) < end]
        with self._lock:
            if any(partition not in self._latest for partition in behind):
                return None
            # another record of the same millisecond may be among those that are left
            return min([read_ms, *(self._latest[partition] - 1 for partition in behind)])


@dataclass
class Counts:
    rows_loaded: int = 0
    rows_rejected: int = 0
    batches: int = 0
    attempts: int = 0
    bytes: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{name: value + vars(other)[name] for name, value in vars(self).items()})

    def figures(self) -> dict[str, int]:
        """Return them by the names of their metrics."""
        return {
            "rows_loaded": self.rows_loaded,
            "rows_rejected": self.rows_rejected,
            "loaded_bytes": self.bytes,
            "batches": self.batches,
            "attempts": self.attempts,
        }


@dataclass(frozen=True)
class Shown:
    counts: Counts
    rows_per_s: float
    bytes_per_s: float
    last_error: str
    last_loaded_ms: int | None


@dataclass
class JobProgress:
    """The progress of a job. It is thread-safe. Rates are over the last minute."""

    counts: Counts = field(default_factory=Counts)
    times: EventTimes = field(default_factory=EventTimes)
    _recent: deque[tuple[float, int, int]] = field(default_factory=deque)
    _last_error: str = ""
    _last_loaded_ms: int | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def loaded(self, pending: Pending, answer: Loaded, clock: Clock) -> None:
        rows, size = answer.row_count or 0, pending.content.bytes if pending.content else 0
        with self._lock:
            self.counts.rows_loaded += rows
            self.counts.rows_rejected += answer.filtered_rows
            self.counts.bytes += size
            self.counts.batches += 1
            self._last_loaded_ms = clock.now_ms()
            self._recent.append((clock.monotonic_s(), rows, size))

    def attempted(self) -> None:
        with self._lock:
            self.counts.attempts += 1

    def error(self, words: str) -> None:
        with self._lock:
            self._last_error = words

    def shown(self, clock: Clock) -> Shown:
        with self._lock:
            now_s = clock.monotonic_s()
            while self._recent and self._recent[0][0] < now_s - _RATE_S:
                self._recent.popleft()
            over_s = max(1.0, min(_RATE_S, now_s - self._recent[0][0]) if self._recent else 1.0)
            rows = sum(rows for _, rows, _ in self._recent) / over_s
            size = sum(size for _, _, size in self._recent) / over_s
            counts = Counts(**vars(self.counts))
            return Shown(counts, rows, size, self._last_error, self._last_loaded_ms)
