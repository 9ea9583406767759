"""Executors whose work is done when a test says so or somebody waits for it, or at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

T = TypeVar("T")


class LaterExecutor(Executor):
    def __init__(self) -> None:
        self._waiting: list[_Later[Any]] = []

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        later = _Later(lambda: fn(*args, **kwargs))
        self._waiting.append(later)
        return later

    def run_all(self) -> int:
        """Do what was not done yet, in order. Returns how much that was."""
        waiting, self._waiting = self._waiting, []
        return sum(later.run() for later in waiting)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if wait:
            self.run_all()


class AtOnceExecutor(Executor):
    """Does what it is given while it is given it, on the caller's thread."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        done = _Later(lambda: fn(*args, **kwargs))
        done.run()
        return done


class _Later(Future[T]):
    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__()
        self._work = work

    def run(self) -> bool:
        if self.done():
            return False
        try:
            self.set_result(self._work())
        except Exception as error:  # noqa: BLE001  belongs to whoever asks for the result
            self.set_exception(error)
        return True

    def result(self, timeout: float | None = None) -> T:
        self.run()
        return super().result(timeout)
