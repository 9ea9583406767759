"""The wake-ups of a process of a subscription, and its end: a stop, or that the subscription was dropped."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rtolap.base.errors import Unavailable

log = logging.getLogger(__name__)


class Wakeups:
    """The changes that a process waits for. On one event loop, apart from what `announced` returns.

    Args:
        is_wanted: returns False once the subscription was dropped. Raises Unavailable; called on a thread.

    Attributes:
        stopping: whether the process was told to end.
    """

    def __init__(self, is_wanted: Callable[[], bool]) -> None:
        self.stopping = False
        self._is_wanted = is_wanted
        self._changed = asyncio.Event()

    def stop(self) -> None:
        """End the process after the calls that are at work."""
        self.stopping = True
        self._changed.set()

    def notify(self) -> None:
        """End the wait, or the next one."""
        self._changed.set()

    def announced(self, loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        """Return a `notify` for other threads. It does nothing once the loop is closed."""

        def changed() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._changed.set)

        return changed

    async def is_over(self) -> bool:
        """Return False while ZooKeeper is away: what is not known to be dropped goes on."""
        if self.stopping:
            return True
        try:
            return not await asyncio.to_thread(self._is_wanted)
        except Unavailable as error:
            log.warning("this process waits for the source's ZooKeeper: %s", error)
            return self.stopping

    async def wait(self, timeout_s: float) -> None:
        """Return at the next change, or after the time."""
        try:
            await asyncio.wait_for(self._changed.wait(), timeout_s)
        except TimeoutError:
            return
        self._changed.clear()
