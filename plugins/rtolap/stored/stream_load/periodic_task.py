"""A thread with a periodic task."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event, Thread

from rtolap.base.errors import NotLeader, RtolapError

log = logging.getLogger(__name__)


class PeriodicTask:
    """A thread that calls `work` every `every_s`, and at once after `wake`, until it is stopped.

    An error of the product's own tree (a node or the ledger is away, another front end is master) is
    reported, and the next round tries again. Any other exception is a fault of the program: it ends the
    thread and calls `broken`.
    """

    def __init__(
        self,
        name: str,
        every_s: float,
        work: Callable[[], object],
        broken: Callable[[str], object] = lambda name: None,
    ) -> None:
        self._name = name
        self._every_s = every_s
        self._work = work
        self._broken = broken
        self._woken = Event()
        self._stopping = False
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._woken.set()

    def stop(self) -> None:
        """Stop, and return when the round under way is over."""
        self._stopping = True
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._woken.clear()
                if self._stopping:  # set between the two
                    return
                self.run_once()
                self._woken.wait(self._every_s)
        except BaseException:
            log.exception("%s has ended by an error of the program", self._name)
            self._broken(self._name)

    def run_once(self) -> None:
        """Run the work once, in the caller's thread."""
        try:
            self._work()
        except NotLeader as error:
            log.info("%s: %s", self._name, error)
        except RtolapError as error:
            log.warning("%s: %s", self._name, error)
