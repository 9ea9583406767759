"""Gaps without a response, while processes die, stand still and come back."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

from rtolap.base.closeable import Closeable

_JOIN_S = 90.0


class Asking(Closeable):
    """Sends queries again and again, one after the other, on a thread of its own.

    `ask` raises one of `refusals` for a statement that is refused; a result that is wrong, or any other
    error, ends the queries and is raised by `close`.
    """

    def __init__(self, ask: Callable[[], None], *refusals: type[Exception], pause_s: float = 0.01) -> None:
        self._refusals = refusals
        self.refused: Counter[str] = Counter()
        self.wrong: BaseException | None = None
        self._ask = ask
        self._pause_s = pause_s
        self._lock = threading.Lock()
        self._answered_s = time.monotonic()
        self._longest_s = 0.0
        self._answers = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="asking", daemon=True)
        self._thread.start()

    def take(self) -> tuple[float, Counter[str]]:
        """Return (longest time without an answer in seconds, refusals by kind) since the last call."""
        with self._lock:
            longest_s = max(self._longest_s, time.monotonic() - self._answered_s)
            refused, self.refused = self.refused, Counter()
            self._longest_s, self._answered_s = 0.0, time.monotonic()
        return longest_s, refused

    @property
    def answers(self) -> int:
        return self._answers

    def close(self) -> None:
        self._over.set()
        self._thread.join(_JOIN_S)
        if self.wrong is not None:
            raise self.wrong

    def _run(self) -> None:
        try:
            while not self._over.wait(self._pause_s):
                self._step()
        except BaseException as error:
            self.wrong = error  # raised where somebody looks
            raise

    def _step(self) -> None:
        try:
            self._ask()
        except self._refusals as error:
            with self._lock:
                self.refused[f"{type(error).__name__}: {str(error)[:200]}"] += 1
            return
        with self._lock:
            self._answers += 1
            self._longest_s = max(self._longest_s, time.monotonic() - self._answered_s)
            self._answered_s = time.monotonic()
