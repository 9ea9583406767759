"""Threads for a front end's standing work: each calls one function again and again until it is stopped."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event, Thread

from rtolap.base.errors import NotLeader, RtolapError

log = logging.getLogger(__name__)


class PeriodicTask:
    """`work` every `every_s`, and at once after `wake`.

    What the tree of errors names (a node or the ledger is away, another front end is master) is reported and
    tried again with the next round. Anything else is a fault of the program: the thread ends, and `broken`
    is called.
    """

    def __init__(
        self, name: str, every_s: float, work: Callable[[], object], broken: Callable[[str], object]
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
        """Returns when the round under way is over."""
        self._stopping = True
        self._woken.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._woken.clear()
                if self._stopping:  # told so between the two
                    return
                self.run_once()
                self._woken.wait(self._every_s)
        except BaseException:
            log.exception("%s has ended by an error of the program", self._name)
            self._broken(self._name)

    def run_once(self) -> None:
        """The work once, in the caller's thread."""
        try:
            self._work()
        except NotLeader as error:
            log.info("%s: %s", self._name, error)
        except RtolapError as error:
            log.warning("%s: %s", self._name, error)
