"""The end of a query: a time-out, a KILL or a lost client interrupts whatever the query is doing."""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable, Collection
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from rtolap.base.clock import Clock
from rtolap.base.errors import QueryError, QueryInterrupted, QueryTimeout
from rtolap.query.engine_choice import EngineWish

log = logging.getLogger(__name__)

AGAIN_S = 0.05  # between calls of what has to be repeated until the query is over

_PAST_MIN = 64  # time-outs taken back stay in the heap until they are this many, and more than the others


class Timeouts:
    """Calls functions back at their time, all on one thread: a thread a query costs as much as a small query.

    Thread-safe. Callbacks must be short.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._changed = threading.Condition()
        self._due: list[tuple[float, int]] = []  # heap of (monotonic seconds, number)
        self._calls: dict[int, Callable[[], None]] = {}
        self._next = 0
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="timeouts", daemon=True)
        self._thread.start()

    def schedule(self, at_s: float, call: Callable[[], None]) -> int:
        """Return the number to `remove` it by."""
        with self._changed:
            self._next += 1
            self._calls[self._next] = call
            heapq.heappush(self._due, (at_s, self._next))
            if self._due[0][1] == self._next:
                self._changed.notify()
            return self._next

    def remove(self, number: int) -> None:
        """Remove a timeout. It is harmless when it has been called already."""
        with self._changed:
            self._calls.pop(number, None)
            if len(self._due) > _PAST_MIN + 2 * len(self._calls):
                self._due = [entry for entry in self._due if entry[1] in self._calls]
                heapq.heapify(self._due)

    def close(self) -> None:
        """Stop the thread. No callback is called any more."""
        with self._changed:
            self._closed = True
            self._calls.clear()
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                now_s = self.clock.monotonic_s()
                if not self._due or self._due[0][0] > now_s:
                    self._changed.wait(self._due[0][0] - now_s if self._due else None)
                    continue
                _, number = heapq.heappop(self._due)
                call = self._calls.pop(number, None)
            if call is not None:
                try:
                    call()
                except Exception:  # one query's error must not end the time-outs of all others
                    log.exception("a query's time-out could not end it")


class Cancellation:
    """The time limit of one statement, and the means to interrupt it. Thread-safe.

    A callback of `on_cancel` runs once, and at once if the statement is cancelled already. A callback that is
    registered with `until_over` runs again and again until `close`, because an engine that is interrupted
    between two steps forgets it with the next one.
    """

    def __init__(
        self,
        timeouts: Timeouts,
        timeout_ms: int,
        user: str = "",
        engine: EngineWish = "auto",
        door: str = "",
    ) -> None:
        self.clock = timeouts.clock
        self.timeout_ms = timeout_ms
        self.user = user
        self.door = door  # by which the statement has come
        self.engine: EngineWish = engine  # that the session wishes to read history
        self.progress = ""  # of what the statement waits for elsewhere, in words
        self._deadline_s = self.clock.monotonic_s() + timeout_ms / 1000
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []
        self._insistent: list[Callable[[], None]] = []
        self._insisting = threading.Lock()  # held while they run, so that none runs after `close`
        self._at_close: list[Callable[[], None]] = []
        self._error: QueryError | None = None
        self._timeouts = timeouts
        self._timeout = timeouts.schedule(self._deadline_s, self._time_out)

    def part(self) -> Cancellation:
        """Return the end of one of several steps of the statement, which has the time that is left and ends
        with the statement. Raises what has ended that."""
        self.check()
        part = Cancellation(self._timeouts, self.remaining_ms(), self.user, self.engine, self.door)
        part.timeout_ms = self.timeout_ms
        self.on_cancel(lambda: part._end(self.error() or QueryInterrupted("the query was interrupted")))
        return part

    def remaining_ms(self) -> int:
        return max(0, int((self._deadline_s - self.clock.monotonic_s()) * 1000))

    def cancel(self, reason: str) -> None:
        self._end(QueryInterrupted(f"the query was interrupted: {reason}"))

    def on_cancel(self, callback: Callable[[], None], *, until_over: bool = False) -> None:
        with self._lock:
            if until_over:
                self._insistent.append(callback)
            elif self._error is None:
                self._callbacks.append(callback)
            is_over = self._error is not None
        if not is_over:
            return
        if until_over:
            self._insist()
        else:
            callback()

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call it when the statement is over, however it ends."""
        with self._lock:
            self._at_close.append(callback)

    def error(self) -> QueryError | None:
        with self._lock:
            return self._error

    def check(self) -> None:
        """Raise the reason if the query was ended."""
        error = self.error()
        if error is not None:
            raise error

    def close(self) -> None:
        """End the query: no callback runs any more."""
        self._timeouts.remove(self._timeout)
        with self._insisting, self._lock:
            self._callbacks.clear()
            self._insistent.clear()
            at_close, self._at_close = self._at_close, []
        for callback in at_close:
            callback()

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
        self._insist()

    def _insist(self) -> None:
        with self._insisting:
            with self._lock:
                callbacks = list(self._insistent)
            for callback in callbacks:
                callback()
            if callbacks:
                self._timeouts.schedule(self.clock.monotonic_s() + AGAIN_S, self._insist)


def wait_within(futures: Collection[Future[Any]], ending: Cancellation) -> None:
    """Wait until all are over. Raises what ends the statement, also where work waits for a free thread."""
    if not futures:
        return
    ended_early: Future[None] = Future()
    ending.on_cancel(lambda: ended_early.set_result(None))
    left: set[Future[Any]] = set(futures)
    while left and not ended_early.done():
        left -= wait((*left, ended_early), return_when=FIRST_COMPLETED).done
    if left:
        for future in left:
            future.cancel()
        ending.check()
