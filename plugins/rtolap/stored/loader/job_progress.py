"""Progress and troubles of a loader, for people and for metrics."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

from rtolap.base.clock import Clock
from rtolap.stored.loader.records.event_times import EventTimes
from rtolap.stored.loader.window import Pending
from rtolap.stored.metastore.offsets import Loaded

_RATE_S = 60.0


@dataclass
class Counts:
    rows_loaded: int = 0
    rows_rejected: int = 0
    batches: int = 0
    attempts: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Shown:
    counts: Counts
    rows_per_s: float
    bytes_per_s: float
    last_error: str
    last_loaded_ms: int | None


@dataclass
class Progress:
    """Thread-safe. Rates are over the last minute."""

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
