"""One stream of rows of a transaction: into its tablets, and prepared at once when it ends as announced."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from threading import Lock
from time import monotonic

import pyarrow as pa

from rtolap.base.errors import DefinitionError, Refused, RtolapError, Unavailable
from rtolap.protocols.storage.messages import PutAnswer, PutEnd, PutHead, TabletId
from rtolap.stored.engine.transaction import Transaction
from rtolap.stored.node.memory import LoadMemory
from rtolap.stored.node.tablet_replicas import TabletReplicas

log = logging.getLogger(__name__)


class Load:
    """For the thread of its stream, and for others that give it up (`abort`). It is over after an error."""

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
        """NotFound: the tablet is not here. Else as `tablet.Transaction.add_rows`."""
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
        """Durable on return, if as many rows have come as were sent. Refused otherwise."""
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
