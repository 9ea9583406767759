"""AdmissionControl of queries: so many at a time in all, and so many of them for one user."""

from __future__ import annotations

import threading
from collections import Counter


class AdmissionControl:
    """Thread-safe. Who waits gets a turn before those whose user has more of them already; else in order."""

    def __init__(self, total: int, per_user: int) -> None:
        self.total = total
        self.per_user = per_user
        self._changed = threading.Condition()
        self._running: Counter[str] = Counter()
        self._waiting: dict[object, str] = {}

    def acquire(self, user: str, timeout_s: float) -> bool:
        """False when there was none in time."""
        ticket = object()
        with self._changed:
            self._waiting[ticket] = user
            try:
                has_turn = self._changed.wait_for(lambda: self._next() is ticket, timeout_s)
                if has_turn:
                    self._running[user] += 1
            finally:
                del self._waiting[ticket]
                self._changed.notify_all()
            return has_turn

    def release(self, user: str) -> None:
        with self._changed:
            if not self._running[user]:
                raise ValueError(f"a turn of {user!r} was given back too many times")
            self._running[user] -= 1
            if not self._running[user]:
                del self._running[user]
            self._changed.notify_all()

    def _next(self) -> object | None:
        if self._running.total() >= self.total:
            return None
        able = [ticket for ticket, user in self._waiting.items() if self._running[user] < self.per_user]
        return min(able, key=lambda ticket: self._running[self._waiting[ticket]], default=None)
