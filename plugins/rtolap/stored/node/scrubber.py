"""Reads what a node has on its disk again, so that damage is found while another replica is whole."""

from __future__ import annotations

import logging
from contextlib import closing
from threading import Event, Thread
from time import monotonic

from rtolap.base.errors import Corrupted, RtolapError
from rtolap.stored.node.tablet_replicas import TabletReplica, TabletReplicas

log = logging.getLogger(__name__)


class Scrubber:
    """The scrubber of a node: one tablet after the other, in a thread of its own, at a bounded rate.

    A node has read every byte when it opens a tablet; statements and partial updates trust it from then on. A
    tablet with damage stops, counts as broken, and is rebuilt from another replica.
    """

    def __init__(self, tablets: TabletReplicas, every_s: float, bytes_per_s: float) -> None:
        """`every_s`: from the beginning of one round to the next; the first one begins that long after the
        start. `bytes_per_s`: the most that is read, on average over some files."""
        self._tablets, self._every_s, self._bytes_per_s = tablets, every_s, bytes_per_s
        self._stopping = Event()
        self.verified_bytes = self.rounds = 0
        self._thread = Thread(target=self._run, name="scrubber", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop, and return when the file under way has been read."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def run_once(self) -> None:
        """Verify all tablets, unless stopped meanwhile."""
        for replica in self._tablets.all():
            try:
                self._verify(replica)
            except Corrupted as error:  # it counts as broken from now on
                log.error("tablet %s is damaged: %s", replica.id, error)
            except RtolapError as error:  # dropped meanwhile, say
                log.info("tablet %s is not verified: %s", replica.id, error)
            except Exception:  # of the program: other tablets are verified all the same
                log.exception("tablet %s cannot be verified", replica.id)
            if self._stopping.is_set():
                return
        self.rounds += 1

    def _verify(self, replica: TabletReplica) -> None:
        with closing(replica.verify()) as verified:
            for size_bytes in verified:
                self.verified_bytes += size_bytes
                if self._pause(size_bytes / self._bytes_per_s):
                    return

    def _pause(self, seconds: float) -> bool:
        return self._stopping.wait(seconds)

    def _run(self) -> None:
        began_s = monotonic()
        while not self._stopping.wait(max(0.0, began_s + self._every_s - monotonic())):
            began_s = monotonic()
            self.run_once()
