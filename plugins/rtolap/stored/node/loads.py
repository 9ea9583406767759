"""The loads that run on a node: not too many, none silent for ever, none of an aborted transaction."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from time import monotonic

from rtolap.base.errors import Refused, Unavailable
from rtolap.protocols.storage.messages import PutHead
from rtolap.stored.node.load import Load
from rtolap.stored.node.memory import LoadMemory
from rtolap.stored.node.settings import StorageSettings
from rtolap.stored.node.tablet_replicas import TabletReplicas

log = logging.getLogger(__name__)


class Loads:
    """Thread-safe."""

    def __init__(
        self,
        slots: TabletReplicas,
        settings: StorageSettings,
        free_bytes: Callable[[], int],
        now_s: Callable[[], float] = monotonic,
    ) -> None:
        self._slots, self._settings, self._free_bytes, self._now_s = slots, settings, free_bytes, now_s
        self.memory = LoadMemory(settings.load_memory_bytes_max, settings.loads_max)
        self._lock = Lock()
        self._running: set[Load] = set()
        self.rows = 0
        self._aborted: OrderedDict[int, None] = OrderedDict()

    def begin(self, head: PutHead) -> Load:
        """Unavailable: too many run, or the disk is nearly full. Refused: the transaction was aborted."""
        free_bytes = self._free_bytes()
        if free_bytes < self._settings.disk_free_bytes_min:
            raise Unavailable(
                "the disk is nearly full",
                expected=f"{self._settings.disk_free_bytes_min} bytes free",
                found=free_bytes,
                action="make room, then send it again",
            )
        with self._lock:
            if head.txn_id in self._aborted:
                raise Refused(f"transaction {head.txn_id} was aborted")
            if len(self._running) >= self._settings.loads_max:
                raise Unavailable(
                    "too many loads run on this node",
                    expected=f"at most {self._settings.loads_max}",
                    action="send it again in a second",
                )
            load = Load(
                head, self._slots, self.memory, self._settings.batch_bytes_max, self._forget, self._now_s
            )
            self._running.add(load)
            return load

    def running(self) -> tuple[int, ...]:
        """Their transactions."""
        with self._lock:
            return tuple(sorted({load.txn_id for load in self._running}))

    def was_aborted(self, txn_id: int) -> bool:
        with self._lock:
            return txn_id in self._aborted

    def abort(self, txn_id: int, *, for_ever: bool) -> None:
        """Give up its streams. `for_ever`: later ones are refused."""
        with self._lock:
            if for_ever:
                self._aborted[txn_id] = None
                while len(self._aborted) > self._settings.aborted_max:
                    self._aborted.popitem(last=False)
            loads = [load for load in self._running if load.txn_id == txn_id]
        for load in loads:
            reason = "the transaction was aborted" if for_ever else "another replica's copy takes its place"
            load.abort(reason, everywhere=for_ever)

    def give_up_silent(self) -> int:
        """Those that bring nothing for too long; their number."""
        late_s = self._now_s() - self._settings.load_idle_s
        with self._lock:
            silent = [load for load in self._running if load.heard_s < late_s]
        for load in silent:
            log.warning("the load of transaction %d is given up: it is silent", load.txn_id)
            load.abort(f"nothing came for {self._settings.load_idle_s:g} s")
        return len(silent)

    def close(self) -> None:
        with self._lock:
            running = list(self._running)
        for load in running:
            load.abort("the node stops")

    def _forget(self, load: Load) -> None:
        with self._lock:
            self._running.discard(load)
            self.rows += load.rows
