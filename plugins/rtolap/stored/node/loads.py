"""Loads of a node: streams of rows of transactions, bounded in number and memory, none silent for ever."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from threading import Lock
from time import monotonic

import pyarrow as pa

from rtolap.base.errors import DefinitionError, Refused, RtolapError, Unavailable
from rtolap.protocols.storage.messages import PutAnswer, PutEnd, PutHead, TabletId
from rtolap.stored.engine.transaction import Transaction
from rtolap.stored.node.settings import StorageSettings
from rtolap.stored.node.tablet_replicas import TabletReplicas

log = logging.getLogger(__name__)


class LoadMemory:
    """The memory of rows that are in no file yet, over all loads of a node. Thread-safe.

    While all loads together exceed `bytes_max`, a load that adds rows writes files until it is down to its
    share. So memory never exceeds twice `bytes_max`, and no load waits for another.
    """

    def __init__(self, bytes_max: int, loads_max: int) -> None:
        self._bytes_max = bytes_max
        self.share_bytes = bytes_max // loads_max
        self._lock = Lock()
        self._used: dict[object, int] = {}
        self._total = 0

    @property
    def used_bytes(self) -> int:
        return self._total

    def note_used(self, load: object, used_bytes: int) -> None:
        """Note the memory that a load uses now; 0 when it has ended."""
        with self._lock:
            self._total += used_bytes - self._used.pop(load, 0)
            if used_bytes:
                self._used[load] = used_bytes

    def has_to_write(self, load: object) -> bool:
        with self._lock:
            return self._total > self._bytes_max and self._used.get(load, 0) > self.share_bytes


class Load:
    """A stream of a transaction's rows. They go into tablets, and are prepared when it ends as announced.

    The thread of the stream uses it, and other threads may give it up (`abort`). An error ends it.
    """

    def __init__(
        self,
        head: PutHead,
        slots: TabletReplicas,
        memory: LoadMemory,
        batch_bytes_max: int,
        ended: Callable[[Load], None],
        now_s: Callable[[], float] = monotonic,
    ) -> None:
        self.txn_id = head.txn_id
        self._head, self._slots, self._memory, self._ended = head, slots, memory, ended
        self._batch_bytes_max, self._now_s = batch_bytes_max, now_s
        self._lock = Lock()
        self._transactions: dict[TabletId, Transaction] = {}
        self._rows: Counter[TabletId] = Counter()
        self._over: RtolapError | None = None
        self.heard_s = now_s()

    @property
    def rows(self) -> int:
        return self._rows.total()

    def add_rows(self, tablet: TabletId, batch: pa.RecordBatch) -> None:
        """Add rows. NotFound: the tablet is not here. Raises otherwise as `Transaction.add_rows`."""
        with self._lock:
            self._check()
            if batch.nbytes > self._batch_bytes_max:
                raise DefinitionError(
                    "a batch is too large", expected=f"{self._batch_bytes_max} bytes", found=batch.nbytes
                )
            self._transaction(tablet).add_rows(batch)
            self._rows[tablet] += batch.num_rows
            self._note()
            while self._memory.has_to_write(self):
                max(self._transactions.values(), key=lambda each: each.memory_bytes).flush()
                self._note()
            self.heard_s = self._now_s()

    def finish(self, end: PutEnd) -> PutAnswer:
        """Make the rows durable, if as many have come as were sent. Raises Refused otherwise."""
        with self._lock:
            self._check()
            wanted = {each.tablet: each.rows for each in end.tablets}
            rows_by_tablet = {tablet: self._rows[tablet] for tablet in {*wanted, *self._rows}}
            if rows_by_tablet != wanted:
                different = {
                    str(t): (wanted.get(t), rows)
                    for t, rows in rows_by_tablet.items()
                    if wanted.get(t) != rows
                }
                raise Refused("rows are missing", expected="what was announced", found=different)
            for tablet in wanted:
                self._transaction(tablet).prepare()
            self._end("it is prepared", Refused)
            return PutAnswer(tuple(sorted(wanted)))

    def abort(self, reason: str, *, everywhere: bool = False) -> None:
        """Give up what is not prepared; harmless afterwards. Rows that still come are Refused if it is
        over `everywhere`, and Unavailable if it is over on this node alone: others may take them."""
        with self._lock:
            if self._over is not None:
                return
            for tablet, transaction in self._transactions.items():
                try:
                    transaction.abort()
                except RtolapError as error:  # its folder is removed when the tablet is opened next
                    log.warning("transaction %d in %s: %s", self.txn_id, tablet, error)
            self._end(reason, Refused if everywhere else Unavailable)

    def _transaction(self, tablet: TabletId) -> Transaction:
        known = self._transactions.get(tablet)
        if known is None:
            slot = self._slots.get(tablet)
            self._slots.raise_schema(slot, self._head.schema)
            known = slot.open().begin(self.txn_id, self._head.schema, partial=self._head.partial)
            self._transactions[tablet] = known
        return known

    def _note(self) -> None:
        self._memory.note_used(self, sum(each.memory_bytes for each in self._transactions.values()))

    def _check(self) -> None:
        if self._over is not None:
            raise self._over

    def _end(self, reason: str, kind: type[Refused] | type[Unavailable]) -> None:
        self._over = kind(f"the load of transaction {self.txn_id} is over", found=reason)
        self._transactions.clear()
        self._memory.note_used(self, 0)
        self._ended(self)


class Loads:
    """The loads that run: not too many, none of an aborted transaction. Thread-safe."""

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
        """Begin a load.

        Unavailable: too many run, or the disk is nearly full. Refused: the transaction was aborted.
        """
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
        """Return the transactions of the running loads."""
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
        """Abort the loads that have brought nothing for too long, and return their number."""
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
