"""One query's end: a time-out, a KILL or a client that went away interrupts whatever it is doing."""

from __future__ import annotations

import threading
from collections.abc import Callable

from rtolap.base.clock import Clock
from rtolap.base.errors import QueryError, QueryTimeout


class Cancellation:
    """Thread-safe. `on_cancel` callbacks run once, at once if it is cancelled already."""

    def __init__(self, clock: Clock, timeout_ms: int) -> None:
        self.clock = clock
        self.timeout_ms = timeout_ms
        self._deadline_s = clock.monotonic_s() + timeout_ms / 1000
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []
        self._error: QueryError | None = None
        self._timer = threading.Timer(timeout_ms / 1000, self._time_out)
        self._timer.daemon = True
        self._timer.start()

    def remaining_ms(self) -> int:
        return max(0, int((self._deadline_s - self.clock.monotonic_s()) * 1000))

    def cancel(self, reason: str) -> None:
        self._end(QueryError(f"the query was interrupted: {reason}"))

    def on_cancel(self, callback: Callable[[], None]) -> None:
        with self._lock:
            if self._error is None:
                self._callbacks.append(callback)
                return
        callback()

    def error(self) -> QueryError | None:
        with self._lock:
            return self._error

    def check(self) -> None:
        """Raises the reason if the query was ended."""
        error = self.error()
        if error is not None:
            raise error

    def close(self) -> None:
        """The query is over: no callback runs any more."""
        self._timer.cancel()
        with self._lock:
            self._callbacks.clear()

    def _time_out(self) -> None:
        self._end(
            QueryTimeout(
                f"the query took longer than {self.timeout_ms} ms",
                action="ask for less, or raise max_execution_time",
            )
        )

    def _end(self, error: QueryError) -> None:
        with self._lock:
            if self._error is not None:
                return
            self._error = error
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
