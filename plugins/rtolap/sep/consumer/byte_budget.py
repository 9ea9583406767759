"""A bound on the bytes of all frames that are read or worked on at the same time, over all connections."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class ByteBudget:
    """Hands out bytes in the order in which they are asked for; for one event loop.

    Who waits is called once its bytes are its own. Nobody overtakes: small frames never starve a large one.
    """

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.taken_bytes = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def take(self, count: int, then: Callable[[], None]) -> bool:
        """Call `then` at once and return True, or once `count` bytes, at most the size, are free."""
        if self._waiting or self.taken_bytes + count > self.size_bytes:
            self._waiting.append((count, then))
            return False
        self.taken_bytes += count
        then()
        return True

    def forget(self, then: Callable[[], None]) -> None:
        """Wait no longer: `then` is not called any more."""
        self._waiting = deque(waiting for waiting in self._waiting if waiting[1] != then)
        self._hand_out()

    def give_back(self, count: int) -> None:
        self.taken_bytes -= count
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting and self.taken_bytes + self._waiting[0][0] <= self.size_bytes:
            count, then = self._waiting.popleft()
            self.taken_bytes += count
            then()
