"""Values that are looked up elsewhere, while no caller waits long for a newer one."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rtolap.base.clock import Clock
from rtolap.base.closeable import Closeable
from rtolap.base.errors import Unavailable

log = logging.getLogger(__name__)

T = TypeVar("T")

WAIT_S_MAX = 0.5  # what one statement waits for a newer value while an older one is at hand
FRESH_WAIT_S_MAX = 5.0  # where the older one may lack what another service has just defined


@dataclass(eq=False)
class Remembered(Closeable, Generic[T]):
    """A value that is looked up elsewhere. No caller waits long for a newer value while one is known.

    Thread-safe. `look` runs on a thread of its own, once at a time, whatever the number of callers.

    A value older than `max_age_s` is looked up again, and a caller waits for it at most `wait_s_max`. After
    one caller has waited so long for a look, the others get the known value at once until that look ends.
    Only who wants it fresh waits for longer, up to `fresh_wait_s_max`: one of them, while a place stands
    still.
    """

    name: str
    look: Callable[[], T]
    clock: Clock
    max_age_s: float
    wait_s_max: float = WAIT_S_MAX
    fresh_wait_s_max: float = FRESH_WAIT_S_MAX
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    # When its look began, in monotonic seconds, and the value.
    _known: tuple[float, T] | None = field(default=None, init=False)
    _newest: Future[T] | None = field(default=None, init=False)
    _slow: Future[T] | None = field(default=None, init=False)
    _stuck: Future[T] | None = field(default=None, init=False)  # it took `fresh_wait_s_max` and more

    def __post_init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"look-{self.name}")

    def get(self, *, fresh: bool = False) -> T:
        """Return the value.

        Args:
            fresh: True if the value must come from a look that begins after the call, where that ends in
                time.

        Raises the error that `look` raises, except Unavailable while a value is known.
        """
        with self._lock:
            known = self._known
            if known is not None and not fresh and self.clock.monotonic_s() - known[0] < self.max_age_s:
                return known[1]
            look = self._newest
            if look is None or look.done() or (fresh and look.running()):
                look = self._newest = self._thread.submit(self._run)
            if known is not None and not fresh and look is self._slow:
                return known[1]
            is_stuck = self._stuck is not None and not self._stuck.done()
        wait_s = self.fresh_wait_s_max if fresh and not is_stuck else self.wait_s_max
        try:
            return look.result(None if known is None else wait_s)
        except TimeoutError:
            if known is None:
                raise
            with self._lock:
                if self._slow is not look:
                    log.warning("%s: no answer within %g s, the last one stays", self.name, wait_s)
                self._slow = look
                if fresh and not is_stuck:
                    self._stuck = look
            return known[1]
        except Unavailable as error:
            if known is None:
                raise
            log.warning("%s: the last one stays: %s", self.name, error)
            return known[1]

    def close(self) -> None:
        """End the looks, without waiting for one under way."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> T:
        began_s = self.clock.monotonic_s()
        value = self.look()
        with self._lock:
            self._known = (began_s, value)
        return value
