"""Background work of a node, in one thread: compaction, silent loads given up."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Condition, Thread
from time import monotonic

from msgspec.structs import replace

from rtolap.base.clock import Clock, SystemClock
from rtolap.base.errors import RtolapError
from rtolap.stored.node.loads import Loads
from rtolap.stored.node.tablet_replicas import Compaction, TabletReplica, TabletReplicas

log = logging.getLogger(__name__)


class Compactor:
    """The compactor of a node. It runs one compaction at a time.

    Tablets that were published to come first, in their order; all tablets come once in a while. Memory is
    bounded by the settings of one tablet, and the delay at the node's end by one run.
    """

    def __init__(
        self,
        slots: TabletReplicas,
        loads: Loads,
        every_s: float,
        *,
        looking: Callable[[], object] = lambda: None,
        clock: Clock = SystemClock(),
    ) -> None:
        """`looking` is called before all tablets are looked at."""
        self._clock = clock
        self._slots, self._loads, self._every_s, self._looking = slots, loads, every_s, looking
        self._changed = Condition()
        self._due: dict[TabletReplica, None] = {}
        self._stopping = False
        self.runs = self.failures = 0
        self._thread = Thread(target=self._run, name="compactor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def notice(self, slot: TabletReplica) -> None:
        """Note that the tablet was published to."""
        with self._changed:
            self._due[slot] = None
            self._changed.notify()

    def stop(self) -> None:
        """Stop, and return when the run under way is over."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def compact(self, slot: TabletReplica) -> None:
        """Compact the tablet once, and schedule another run if there may be more to do."""
        before = slot.compaction
        slot.compaction = replace(before, running_since_ms=self._clock.now_ms())
        problem, more = "the node is ending", False
        try:
            more = slot.open().compact()
            problem = ""
        except RtolapError as error:
            self.failures += 1
            problem = str(error)
            log.warning("tablet %s is not compacted now: %s", slot.id, error)
        except Exception as error:  # of the program, as with rows that it cannot hold: other tablets go on
            self.failures += 1
            problem = f"{type(error).__name__}: {error}"
            log.exception("tablet %s cannot be compacted", slot.id)
        finally:
            ended_ms = self._clock.now_ms() if more else before.ended_ms
            slot.compaction = Compaction(None, ended_ms, problem)
        self.runs += more
        if more:
            self.notice(slot)

    def _look(self) -> None:
        try:
            self._loads.give_up_silent()
        except Exception:  # tried again with the next look
            log.exception("silent loads are not given up")
        try:
            self._looking()
        except Exception:
            log.exception("pins that have expired are not given up")
        for slot in self._slots.all():
            self.notice(slot)

    def _run(self) -> None:
        looked_s = float("-inf")
        while True:
            if monotonic() - looked_s >= self._every_s:
                looked_s = monotonic()
                self._look()
            with self._changed:
                self._changed.wait_for(lambda: self._due or self._stopping, self._every_s)
                if self._stopping:
                    return
                due = next(iter(self._due), None)
                if due is not None:
                    del self._due[due]
            if due is not None:
                self.compact(due)
