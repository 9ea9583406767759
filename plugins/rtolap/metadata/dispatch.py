"""A thread per store that runs watches, elections and session callbacks."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from rtolap.base.errors import RtolapError

log = logging.getLogger(__name__)

Task = Callable[[], None]

RETRY_S = 1.0


class Dispatcher:
    """Runs each woken task once, however often it was woken meanwhile: calls are merged.

    A task that fails with an RtolapError (the ensemble does not answer) runs again after `RETRY_S`. The
    queue is bounded by the number of distinct tasks, that is of watches and candidacies.
    """

    def __init__(self, name: str) -> None:
        self._changed = threading.Condition()
        self._due: dict[Task, float] = {}
        self._running = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"metadata-{name}", daemon=True)
        self._thread.start()

    def wake(self, task: Task, delay_s: float = 0.0) -> None:
        due_s = time.monotonic() + delay_s
        with self._changed:
            if not self._closed:
                self._due[task] = min(due_s, self._due.get(task, due_s))
                self._changed.notify_all()

    def settle(self, timeout_s: float) -> bool:
        """Wait until nothing is due. For tests that own the order of things."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._running and not self._due, timeout_s)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._due.clear()
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=10)

    def _next(self) -> Task | None:
        with self._changed:
            self._running = False
            self._changed.notify_all()
            while not self._closed:
                now_s = time.monotonic()
                task = next((task for task, due_s in self._due.items() if due_s <= now_s), None)
                if task is not None:
                    del self._due[task]
                    self._running = True
                    return task
                wait_s = min(self._due.values()) - now_s if self._due else None
                self._changed.wait(wait_s)
            return None

    def _run(self) -> None:
        while (task := self._next()) is not None:
            try:
                task()
            except RtolapError as error:
                log.warning("metadata task waits and runs again: %s", error)
                self.wake(task, RETRY_S)
            except Exception:  # a listener's bug must not silence all other watches
                log.exception("metadata listener failed")
