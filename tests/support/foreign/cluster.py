"""Transactions of a stand-in for a cluster of Doris or StarRocks; no sockets. The twin of a sink is its base.

What it adds, as the sources of both have it:

    labels        dropped by age and by number of the database, first in, first out; nobody may keep one
    timeouts      a transaction in PREPARE is aborted at its request's timeout
    StarRocks     a transaction that lives in a backend between `begin` and `prepare`: `load` names it by the
                  label only, so rows of several requests join; a backend that dies forgets it, and the front
                  end holds its label in PREPARE until the timeout
    commit        of a transaction that is not prepared commits what has been loaded into it
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rtolap.protocols.stream_load.messages import LoadAnswer, LoadState, SendOptions, TwoPhaseAnswer

from tests.support.twins.loader_sink import MemorySink, Row, Transaction, read_rows


@dataclass
class Backend:
    """The transactions that `load` and `prepare` find by label, with the rows that have come."""

    contexts: dict[tuple[str, str], list[Row]] = field(default_factory=dict)


class ForeignCluster(MemorySink):
    """`now_ms`: its clock. `labels_max`, `label_kept_ms`: what its configuration says.

    `stray`: rows of an earlier attempt that reach the transaction of a label behind those of a `load`.
    """

    def __init__(self, now_ms: Callable[[], int], *, labels_max: int, label_kept_ms: int) -> None:
        super().__init__(keeps_labels=False, labels_max=labels_max)
        self.backend = Backend()
        self._clock_ms = now_ms
        self._label_kept_ms = label_kept_ms
        self._ended_ms: dict[int, int] = {}
        self._due_ms: dict[int, int] = {}
        self.stray: Callable[[str, int, list[Row]], list[Row]] = lambda label, txn_id, rows: []

    # --- Stream Load ----------------------------------------------------------------------------------

    def begin(
        self, db: str, table: str, label: str, options: SendOptions, *, two_phase: bool
    ) -> Transaction | LoadAnswer:
        with self._lock:
            self.pass_time()
            begun = super().begin(db, table, label, options, two_phase=two_phase)
            if isinstance(begun, Transaction):
                begun.keep = False
                self._due_ms[begun.txn_id] = self._clock_ms() + options.timeout_s * 1000
            return begun

    def state(self, db: str, label: str) -> LoadState:
        with self._lock:
            self.pass_time()
            return super().state(db, label)

    # --- the transaction interface --------------------------------------------------------------------

    def begin_transaction(self, db: str, table: str, label: str, timeout_s: int) -> dict[str, Any]:
        with self._lock:
            if (db, label) in self.backend.contexts:
                return {"Status": "LABEL_ALREADY_EXISTS", "Message": "", "Label": label}
            begun = self.begin(db, table, label, SendOptions(timeout_s=timeout_s), two_phase=True)
            if isinstance(begun, LoadAnswer):
                exists = begun.status == "Label Already Exists"
                answer = {"Status": "LABEL_ALREADY_EXISTS" if exists else "FAILED", "Message": begun.message}
                return answer | ({"ExistingJobStatus": begun.existing_job_status} if exists else {})
            self.backend.contexts[db, label] = []
            return {"Status": "OK", "Message": "", "Label": label, "TxnId": begun.txn_id}

    def load_into(self, db: str, label: str, body: bytes, options: SendOptions) -> dict[str, Any]:
        with self._lock:
            self.pass_time()
            rows = self.backend.contexts.get((db, label))
            if rows is None:
                return {"Status": "TXN_NOT_EXISTS", "Message": f"Transaction with label {label} not exists"}
            sent = read_rows(body, options)
            rows += sent + self.stray(label, self._labels[db, label].txn_id, sent)
            return {"Status": "OK", "Message": "", "Label": label, "NumberTotalRows": len(rows)}

    def prepare(self, db: str, label: str) -> dict[str, Any]:
        with self._lock:
            self.pass_time()
            rows = self.backend.contexts.pop((db, label), None)
            open_one = self._labels.get((db, label))
            if rows is None or open_one is None or open_one.state is not LoadState.PREPARE:
                return {"Status": "TXN_NOT_EXISTS", "Message": f"transaction with label {label} not exists"}
            self._fill(open_one, rows)
            open_one.state = LoadState.PRECOMMITTED
            return {
                "Status": "OK",
                "Message": "",
                "Label": label,
                "TxnId": open_one.txn_id,
                "NumberTotalRows": len(rows),
                "NumberLoadedRows": len(open_one.rows),
                "NumberFilteredRows": open_one.filtered,
            }

    def commit_label(self, db: str, label: str) -> TwoPhaseAnswer:
        with self._lock:
            self.pass_time()
            found = self._labels.get((db, label))
            rows = self.backend.contexts.pop((db, label), None)
            if rows is not None and found is not None and found.state is LoadState.PREPARE:
                if not rows:
                    self.abort(found)
                    return TwoPhaseAnswer("Fail", "hasn't send any data yet")
                self._fill(found, rows)
                found.state = LoadState.PRECOMMITTED
            return super().commit_label(db, label)

    def roll_back(self, db: str, label: str) -> TwoPhaseAnswer:
        with self._lock:
            self.pass_time()
            self.backend.contexts.pop((db, label), None)
            return super().roll_back(db, label)

    def _fill(self, begun: Transaction, sent: list[Row]) -> None:
        columns = self.tables[begun.db, begun.table].properties
        rows = [{column.name: row.get(column.name) for column in columns} for row in sent]
        required = [column.name for column in columns if column.is_nullable == "No"]
        begun.rows = [row for row in rows if all(row[name] is not None for name in required)]
        begun.filtered = len(rows) - len(begun.rows)

    def is_prepared(self, db: str, label: str) -> bool:
        """Return True if a front end answers a commit or a rollback itself: no backend has it."""
        with self._lock:
            found = self._labels.get((db, label))
            return found is not None and found.state is not LoadState.PREPARE

    def label_of_txn(self, txn_id: int) -> str:
        with self._lock:
            return next((each.label for each in self._labels.values() if each.txn_id == txn_id), "")

    # --- what happens to it ---------------------------------------------------------------------------

    def kill_backend(self) -> None:
        """Its transactions are forgotten there; the front end learns of it by their timeouts only."""
        with self._lock:
            self.backend = Backend()

    def abort_running(self) -> None:
        with self._lock:
            self.backend = Backend()
            super().abort_running()

    def pass_time(self) -> None:
        """Abort what has run out of time, and drop labels by age."""
        with self._lock:
            now_ms = self._clock_ms()
            for each in list(self._labels.values()):
                if each.state is LoadState.PREPARE and self._due_ms.get(each.txn_id, now_ms + 1) <= now_ms:
                    self.backend.contexts.pop((each.db, each.label), None)
                    self.abort(each)
            for finished in self._finished.values():
                while finished and now_ms - self._ended_ms[finished[0].txn_id] > self._label_kept_ms:
                    self._drop(finished)

    def _note_finished(self, ended: Transaction) -> None:
        super()._note_finished(ended)
        self._ended_ms[ended.txn_id] = self._clock_ms()

    def _drop(self, finished: deque[Transaction]) -> None:
        dropped = finished.popleft()
        if self._labels.get((dropped.db, dropped.label)) is dropped:
            del self._labels[dropped.db, dropped.label]
