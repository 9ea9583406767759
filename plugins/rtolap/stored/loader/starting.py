"""The beginning of a loader's process: its endpoint, which names it, and what it waits for.

It may have to wait for a lease, the sink, Kafka or the ledger.

While it waits its endpoint answers already: phase `waiting`, and as last error what it waits for. It waits as
long as that takes, and ends where the job is stopped meanwhile.

    begun       → the run
    NotYet      another process owns the job: tried again until `take_s` has passed, then raised
    passing     a peer is away: noted, and tried again with growing pauses
    else        raised
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Callable
from typing import TypeVar

from rtolap.base.clock import Clock
from rtolap.base.errors import NotYet, RtolapError
from rtolap.stored.loader.job import LEASE_MS
from rtolap.stored.loader.process import is_passing, pause_s

log = logging.getLogger(__name__)

T = TypeVar("T")

WAITING = "waiting"
TAKE_S = 2.5 * LEASE_MS / 1000  # the lease of a process that was killed has run out by then
_TAKE_AGAIN_S = 0.5


class Starting:
    """The wait of a process before its run begins. Thread-safe.

    Args:
        is_ended: whether the job was stopped, or has failed, meanwhile.
    """

    def __init__(
        self,
        stopping: threading.Event,
        clock: Clock,
        is_ended: Callable[[], bool] = lambda: False,
        *,
        take_s: float = TAKE_S,
    ) -> None:
        self._stopping = stopping
        self._clock = clock
        self._is_ended = is_ended
        self._take_s = take_s
        self._lock = threading.Lock()
        self._waits_for = ""

    @property
    def waits_for(self) -> str:
        """Return what has kept the run from beginning the last time; "" before the first time."""
        with self._lock:
            return self._waits_for

    def begun(self, begin: Callable[[], T]) -> T | None:
        """Return the run, once it has begun; None where the process or the job is stopped before.

        Raises NotYet where another process keeps the job, and what cannot pass by itself.
        """
        deadline_s = self._clock.monotonic_s() + self._take_s
        tries = 0
        while not self._stopping.is_set():
            try:
                return begin()
            except NotYet as error:
                if self._clock.monotonic_s() > deadline_s:
                    raise
                self._note(error)
                pause = _TAKE_AGAIN_S
            except RtolapError as error:
                if not is_passing(error):
                    raise
                self._note(error)
                tries, pause = tries + 1, pause_s(tries)
            self._stopping.wait(pause)
            if self._has_ended():
                return None
        return None

    def _has_ended(self) -> bool:
        try:
            return self._is_ended()
        except RtolapError as error:
            if not is_passing(error):
                raise
            self._note(error)
            return False

    def _note(self, error: RtolapError) -> None:
        words = str(error)
        with self._lock:
            is_new, self._waits_for = words != self._waits_for, words
        if is_new:
            log.warning("it begins once this is over: %s", words)


def owner_of(address: str) -> str:
    """Return the name of this process as an owner: its address, and what no other process ever has."""
    return f"{address}/{os.getpid()}-{uuid.uuid4().hex[:8]}"


def address_of(owner: str) -> str:
    """Return the address of an owner's endpoint."""
    return owner.partition("/")[0]


def stop_with(stopping: threading.Event, stop: Callable[[], None]) -> None:
    """Have `stop` called once the event is set, from a thread of its own."""

    def wait() -> None:
        stopping.wait()
        stop()

    threading.Thread(target=wait, name="signals", daemon=True).start()
