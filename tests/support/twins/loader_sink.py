"""A sink's deterministic twin: labels, transactions and states as a front end has them, in memory.

Thread-safe. It reads Arrow and JSON lines. A load may be cut in two (`begin`, `finish`), so that it can be
found in PREPARE; with `publishes_late` what is committed becomes visible only by `publish`.
"""

from __future__ import annotations

import json
import math
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from msgspec import UNSET, UnsetType
from rtolap.base.errors import IllegalTransition, NotFound, Refused, RowsRefused, Unavailable
from rtolap.protocols.stream_load.messages import (
    LoadAnswer,
    LoadState,
    SendOptions,
    TableSchema,
    TwoPhaseAnswer,
)

Row = dict[str, Any]
_HELD = {
    LoadState.PREPARE: "RUNNING",
    LoadState.PRECOMMITTED: "PRECOMMITTED",
    LoadState.COMMITTED: "FINISHED",
    LoadState.VISIBLE: "FINISHED",
}


@dataclass
class Transaction:
    txn_id: int
    db: str
    table: str
    label: str
    two_phase: bool
    keep: bool
    state: LoadState = LoadState.PREPARE
    rows: list[Row] = field(default_factory=list)
    filtered: int = 0
    holds_label: bool = False  # though it is aborted


class MemorySink:
    """`tables` by (database, table); `committed` transactions in the order in which they were. `now_ms`: its
    clock, if it is to refuse what comes too late. `labels_max`: it remembers the labels of so many
    finished transactions of a database, as Doris' `label_num_threshold` says; None: all. Transactions that
    asked to keep their label do not count."""

    requests_may_join = False

    def __init__(
        self,
        *,
        keeps_labels: bool = True,
        now_ms: Callable[[], int] | None = None,
        labels_max: int | None = None,
    ) -> None:
        self._labels_max = labels_max
        self._finished: dict[str, deque[Transaction]] = defaultdict(deque)
        self._now_ms = now_ms
        self.tables: dict[tuple[str, str], TableSchema] = {}
        self.committed: list[Transaction] = []
        self.down = False
        self.publishes_late = False
        self._keeps_labels = keeps_labels
        self._labels: dict[tuple[str, str], Transaction] = {}
        self._errors: dict[str, str] = {}
        self._next = 1
        self._lock = threading.RLock()

    # --- the seam -------------------------------------------------------------------------------------

    def load(
        self,
        db: str,
        table: str,
        label: str,
        body: bytes,
        options: SendOptions,
        *,
        two_phase: bool = False,
    ) -> LoadAnswer:
        with self._lock:
            begun = self.begin(db, table, label, options, two_phase=two_phase)
            return begun if isinstance(begun, LoadAnswer) else self.finish(begun, body, options)

    def commit_label(self, db: str, label: str) -> TwoPhaseAnswer:
        with self._lock:
            self._answering()
            labelled = self._labels.get((db, label))
            if labelled is None:
                return TwoPhaseAnswer("Fail", f"transaction with label [{label}] not found")
            if labelled.state is not LoadState.PRECOMMITTED:
                state = (
                    f"already {labelled.state.lower()}" if labelled.state in _HELD else labelled.state.lower()
                )
                return TwoPhaseAnswer(
                    "Fail", f"transaction [{labelled.txn_id}] is {state}, not pre-committed."
                )
            self._commit(labelled)
            return TwoPhaseAnswer("Success", f"transaction [{labelled.txn_id}] commit successfully.")

    def roll_back(self, db: str, label: str) -> TwoPhaseAnswer:
        with self._lock:
            self._answering()
            labelled = self._labels.get((db, label))
            if labelled is None or labelled.state not in (LoadState.PREPARE, LoadState.PRECOMMITTED):
                return TwoPhaseAnswer("Fail", f"transaction with label [{label}] not found")
            self.abort(labelled)
            return TwoPhaseAnswer("Success", f"transaction [{labelled.txn_id}] abort successfully.")

    def mark(self, db: str, table: str, label: str) -> bool:
        with self._lock:
            begun = self.begin(db, table, label, SendOptions(), two_phase=True)
            if isinstance(begun, Transaction):
                self.abort(begun)
            return self.state(db, label) in (LoadState.VISIBLE, LoadState.ABORTED)

    def state(self, db: str, label: str) -> LoadState:
        with self._lock:
            self._answering()
            labelled = self._labels.get((db, label))
            return LoadState.UNKNOWN if labelled is None else labelled.state

    def close_label(self, db: str, label: str) -> LoadState:
        with self._lock:
            self._answering()
            labelled = self._labels.get((db, label))
            if labelled is None or (labelled.state is LoadState.ABORTED and not labelled.holds_label):
                labelled = self._labels[db, label] = Transaction(self._next, db, "", label, False, True)
                self._next += 1
            if labelled.state in (LoadState.PREPARE, LoadState.PRECOMMITTED):
                labelled.state, labelled.holds_label, labelled.keep = LoadState.ABORTED, True, True
            return labelled.state

    def schema(self, db: str, table: str) -> TableSchema:
        with self._lock:
            self._answering()
            if (db, table) not in self.tables:
                raise NotFound(f"table {db}.{table} is not there")
            return self.tables[db, table]

    def keeps_labels(self) -> bool:
        with self._lock:
            self._answering()
            return self._keeps_labels

    def acknowledge(self, db: str, labels: Iterable[str]) -> None:
        with self._lock:
            self._answering()
            for label in labels:
                labelled = self._labels.get((db, label))
                if labelled is None:
                    continue
                if labelled.state not in (LoadState.VISIBLE, LoadState.ABORTED):
                    raise Refused(f"label {label} cannot be acknowledged", found=f"{labelled.state}")
                del self._labels[db, label]

    def error_log(self, url: str) -> str:
        with self._lock:
            self._answering()
            if url not in self._errors:
                raise NotFound(f"there is nothing at {url}")
            return self._errors[url]

    # --- its insides, for tests -----------------------------------------------------------------------

    def begin(
        self, db: str, table: str, label: str, options: SendOptions, *, two_phase: bool
    ) -> Transaction | LoadAnswer:
        with self._lock:
            self._answering()
            if (db, table) not in self.tables:
                return LoadAnswer(
                    label=label, message=f"unknown table, tableName={table}", code=NotFound.code
                )
            holder = self._labels.get((db, label))
            if holder is not None and holder.state in _HELD:
                return LoadAnswer(
                    txn_id=holder.txn_id,
                    label=label,
                    two_phase_commit="true" if two_phase else "false",
                    status="Label Already Exists",
                    existing_job_status=_HELD[holder.state],
                    message=f"Label [{label}] has already been used, relate to txn [{holder.txn_id}]",
                )
            if holder is not None and holder.holds_label:
                return LoadAnswer(label=label, message=f"Label [{label}] is closed", code=Refused.code)
            if self._now_ms is not None and self._now_ms() > (options.not_after_ms or math.inf):
                return LoadAnswer(label=label, message="the request comes too late", code=Refused.code)
            begun = Transaction(self._next, db, table, label, two_phase, options.keep_label)
            self._next += 1
            self._labels[db, label] = begun
            return begun

    def finish(self, begun: Transaction, body: bytes, options: SendOptions) -> LoadAnswer:
        with self._lock:
            if begun.state is not LoadState.PREPARE:
                return self._answer(
                    begun,
                    "Fail",
                    f"transaction [{begun.txn_id}] is {begun.state.lower()}",
                    IllegalTransition.code,
                )
            columns = self.tables[begun.db, begun.table].properties
            sent = read_rows(body, options)
            rows = [{column.name: row.get(column.name) for column in columns} for row in sent]
            required = [column.name for column in columns if column.is_nullable == "No"]
            begun.rows = [row for row in rows if all(row[name] is not None for name in required)]
            begun.filtered = len(rows) - len(begun.rows)
            if begun.filtered:
                self._errors[f"memory:{begun.txn_id}"] = "\n".join(
                    f"{row}: null in a column that takes none" for row in rows if row not in begun.rows
                )
            if begun.filtered > options.max_filter_ratio * len(rows):
                self.abort(begun)
                return self._answer(
                    begun, "Fail", "[DATA_QUALITY_ERROR]too many filtered rows", RowsRefused.code
                )
            if begun.two_phase:
                begun.state = LoadState.PRECOMMITTED
            else:
                self._commit(begun)
            late = begun.state is LoadState.COMMITTED
            return self._answer(begun, "Publish Timeout" if late else "Success", "OK")

    def abort_running(self) -> None:
        """Abort the loads under way, as a restart of the front end does."""
        with self._lock:
            for each in self._labels.values():
                if each.state is LoadState.PREPARE:
                    each.state = LoadState.ABORTED
                    self._note_finished(each)
            self._drop_labels()

    def abort(self, begun: Transaction) -> None:
        with self._lock:
            begun.state = LoadState.ABORTED
            self._note_finished(begun)
            self._drop_labels()

    def use_labels(self, db: str, number: int) -> None:
        """Let somebody else finish so many loads into that database."""
        with self._lock:
            for _ in range(number):
                other = Transaction(
                    self._next, db, "", f"other_{self._next}", False, False, LoadState.VISIBLE
                )
                self._next += 1
                self._labels[db, other.label] = other
                self._note_finished(other)
            self._drop_labels()

    def labels_before_dropped(self, db: str, labels: Container[str]) -> list[int]:
        """Return, for each visible one of `labels` after which another load has finished, how many of others
        drop it, and none after it."""
        with self._lock:
            assert self._labels_max is not None
            finished = self._finished[db]
            free = self._labels_max - len(finished)
            visible = [
                at for at, each in enumerate(finished) if each.rows and each.state is LoadState.VISIBLE
            ]
            return [free + at + 1 for at in visible[:-1] if finished[at].label in labels]

    def publish(self) -> None:
        with self._lock:
            for each in self._labels.values():
                if each.state is LoadState.COMMITTED:
                    each.state = LoadState.VISIBLE
                    self._note_finished(each)
            self._drop_labels()

    def forget_labels(self) -> None:
        """Forget the finished labels that no request asked to keep, as they do with time."""
        with self._lock:
            final = (LoadState.VISIBLE, LoadState.ABORTED)
            self._labels = {
                k: each for k, each in self._labels.items() if each.keep or each.state not in final
            }

    def labels(self, db: str) -> dict[str, LoadState]:
        with self._lock:
            return {label: each.state for (at, label), each in self._labels.items() if at == db}

    def rows(self, db: str, table: str) -> list[Row]:
        """Return the rows of all committed transactions, in their order."""
        with self._lock:
            return [
                row for each in self.committed if (each.db, each.table) == (db, table) for row in each.rows
            ]

    def _answering(self) -> None:
        if self.down:
            raise Unavailable("the sink is down")

    def _commit(self, begun: Transaction) -> None:
        begun.state = LoadState.COMMITTED if self.publishes_late else LoadState.VISIBLE
        self.committed.append(begun)
        if begun.state is LoadState.VISIBLE:
            self._note_finished(begun)
            self._drop_labels()

    def _note_finished(self, ended: Transaction) -> None:
        if not ended.keep:
            self._finished[ended.db].append(ended)

    def _drop_labels(self) -> None:
        """Drop the labels of the transactions that finished first, beyond the number to remember."""
        for db, finished in self._finished.items():
            while self._labels_max is not None and len(finished) > self._labels_max:
                dropped = finished.popleft()
                if self._labels.get((db, dropped.label)) is dropped:
                    del self._labels[db, dropped.label]

    def _answer(
        self, begun: Transaction, status: Any, message: str, code: str | UnsetType = UNSET
    ) -> LoadAnswer:
        rows = len(begun.rows)
        return LoadAnswer(
            txn_id=begun.txn_id,
            label=begun.label,
            two_phase_commit="true" if begun.two_phase else "false",
            status=status,
            message=message,
            number_total_rows=rows + begun.filtered,
            number_loaded_rows=rows if status != "Fail" else 0,
            number_filtered_rows=begun.filtered,
            error_url=f"memory:{begun.txn_id}" if begun.filtered else UNSET,
            code=code,
        )


def read_rows(body: bytes, options: SendOptions) -> list[Row]:
    if options.format == "arrow":
        with pa.ipc.open_stream(body) as reader:
            rows: list[Row] = reader.read_all().to_pylist()
            return rows
    return [json.loads(line) for line in body.splitlines() if line]
