"""Calls of the engine that a statement need not wait for when it is ended.

The engine does not hear an interrupt within every operator: some joins go on for seconds. So each call runs
on a thread of a pool, and a statement that was ended waits GIVE_UP_S for it and no longer. What the statement
holds, its turn above all, is given back when the engine's call has really ended. A statement makes one call
at a time, so there are never more of them, given up or not, than turns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from rtolap.base.closing import Closing
from rtolap.query.cancel import Cancellation

log = logging.getLogger(__name__)

T = TypeVar("T")

GIVE_UP_S = 0.5  # within which most operators hear an interrupt


class EngineCalls(Closing):
    """Thread-safe. `calls_max`: as many as there are turns, so that no call waits for a thread."""

    def __init__(self, calls_max: int) -> None:
        self._threads = ThreadPoolExecutor(calls_max, thread_name_prefix="engine")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def of(self, ending: Cancellation) -> StatementCalls:
        return StatementCalls(self._threads, ending)


class StatementCalls:
    """The calls of one statement, one at a time."""

    def __init__(self, threads: ThreadPoolExecutor, ending: Cancellation) -> None:
        self._threads = threads
        self._ending = ending
        self._last: Future[Any] | None = None
        self._ended: Future[None] = Future()
        ending.on_cancel(lambda: self._ended.set_result(None))

    def call(self, work: Callable[[], T]) -> T:
        """What `work` gives or raises; or what ended the statement, GIVE_UP_S after it at the latest."""
        self._ending.check()
        running: Future[T] = self._threads.submit(work)
        self._last = running
        either: tuple[Future[Any], ...] = (running, self._ended)
        wait(either, return_when=FIRST_COMPLETED)
        if not running.done():
            wait((running,), GIVE_UP_S)
            if not running.done():
                log.warning(
                    "the engine goes on after its statement was ended; the turn is kept until it ends"
                )
                self._ending.check()
        return running.result()

    def finish(self, give_back: Callable[[], None]) -> None:
        """Have `give_back` called once no call of the statement runs any more: now, or on its thread."""
        if self._last is None:
            give_back()
        else:
            self._last.add_done_callback(lambda _: give_back())
