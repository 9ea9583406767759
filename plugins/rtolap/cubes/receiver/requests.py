"""Functions that other threads want run on the core thread, which alone changes the core's state."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TypeVar

from rtolap.base.errors import Unavailable

T = TypeVar("T")

REQUESTS_MAX = 64
REQUEST_TIMEOUT_S = 60.0
_QUEUE_TIMEOUT_S = 1.0


class Requests:
    """`ask` from any thread; `serve` and `end` on the core thread."""

    def __init__(self, cube: str, receiver_id: str) -> None:
        self._cube = cube
        self._receiver_id = receiver_id
        self._queue: queue.Queue[tuple[Callable[[], object], Future[object]]] = queue.Queue(REQUESTS_MAX)
        self._ended = False

    def ask(self, function: Callable[[], T]) -> T:
        """Run `function` on the core and return its result. Its errors pass through; Unavailable if it
        takes too long."""
        future: Future[object] = Future()
        if self._ended:
            raise self._ending()
        try:
            self._queue.put((function, future), timeout=_QUEUE_TIMEOUT_S)
            return future.result(REQUEST_TIMEOUT_S)  # type: ignore[return-value]
        except (queue.Full, FutureTimeout) as error:
            raise Unavailable(
                f"cube {self._cube} is busy", action="try again, or look at its state"
            ) from error

    def serve(self) -> None:
        while not self._queue.empty():
            function, future = self._queue.get_nowait()
            try:
                future.set_result(function())
            except Exception as error:  # noqa: BLE001  belongs to the asker
                future.set_exception(error)

    def refuse_more(self) -> None:
        """From any thread: nothing is taken any more; what is queued is answered by `serve` or `end`."""
        self._ended = True

    def end(self) -> None:
        self._ended = True
        while not self._queue.empty():
            _, future = self._queue.get_nowait()
            future.set_exception(self._ending())

    def _ending(self) -> Unavailable:
        return Unavailable(f"receiver {self._receiver_id} is ending", action="ask another receiver")
