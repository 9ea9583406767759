"""Client of a front end of StarRocks: Stream Load, and its transaction interface for two phases.

    POST /api/transaction/begin      → a transaction in PREPARE
    PUT  /api/transaction/load       → rows into it; may be called again
    POST /api/transaction/prepare    → PREPARED: no more rows; waits for those that are under way
    POST /api/transaction/commit     → COMMITTED, VISIBLE
    POST /api/transaction/rollback   → ABORTED

All name `label`, `db` and `table` in headers. `load` names its transaction by the label only. So a `load` of
a dead process that comes late adds its rows to the next transaction of that label. Therefore the number of
rows that `prepare` states is compared with the rows that were sent, and a transaction that holds others is
rolled back. Whoever finds a transaction prepared whose rows it has not counted rolls it back too.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import UNSET, UnsetType

from rtolap.base.errors import Refused, RtolapError, Unavailable
from rtolap.protocols.stream_load.client import GRACE_S, StreamLoadClient, known_state, load_headers
from rtolap.protocols.stream_load.front_ends import ASK_TIMEOUT_S, read
from rtolap.protocols.stream_load.messages import (
    LoadAnswer,
    LoadState,
    SendOptions,
    TwoPhaseAnswer,
)

OK, LABEL_EXISTS = "OK", "LABEL_ALREADY_EXISTS"
_STATES = {"PREPARED": LoadState.PRECOMMITTED}


class TransactionAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """The answer of each operation; counts come with `load`, `prepare` and `commit`."""

    status: str
    message: str = ""
    txn_id: int = -1
    label: str = ""
    existing_job_status: str | UnsetType = UNSET
    number_total_rows: int = 0
    number_loaded_rows: int = 0
    number_filtered_rows: int = 0
    number_unselected_rows: int = 0
    load_bytes: int = 0
    error_url: str | UnsetType = msgspec.field(default=UNSET, name="ErrorURL")


class _State(msgspec.Struct, frozen=True):
    state: str | None = None
    status: str = ""
    msg: str = ""


class StarRocksClient(StreamLoadClient):
    """Thread-safe, as its base. A load in two phases goes through the transaction interface."""

    requests_may_join = True

    def load(
        self,
        db: str,
        table: str,
        label: str,
        body: bytes | Iterable[bytes],
        options: SendOptions = SendOptions(),
        *,
        two_phase: bool = False,
    ) -> LoadAnswer:
        if not two_phase:
            return super().load(db, table, label, body, options)
        begun = self._transaction("begin", db, label, table=table, timeout=str(options.timeout_s))
        if begun.status != OK:
            return _answer(begun, label)
        try:
            return self._fill(db, table, label, body, options)
        except Unavailable:
            # else its label stays in PREPARE until the timeout; if this is lost too, it does
            with suppress(RtolapError):
                self._transaction("rollback", db, label)
            raise

    def _fill(
        self, db: str, table: str, label: str, body: bytes | Iterable[bytes], options: SendOptions
    ) -> LoadAnswer:
        """Load the rows into the transaction of the label and prepare it, or roll it back."""
        answer = self._front_ends.put(
            "/api/transaction/load",
            load_headers(label, options) | {"db": db, "table": table},
            body,
            timeout_s=options.timeout_s + GRACE_S,
            repeatable=False,
        )
        taken = read(answer.status, answer.body, TransactionAnswer, f"load {label}")
        if taken.status != OK:
            return self._ended(db, label, _answer(taken, label))
        prepared = self._transaction("prepare", db, label, timeout_s=options.timeout_s + GRACE_S)
        if prepared.status != OK:
            return self._ended(db, label, _answer(prepared, label))
        if options.rows is not None and prepared.number_total_rows != options.rows:
            failed = LoadAnswer(
                txn_id=prepared.txn_id,
                label=label,
                message=f"the transaction holds {prepared.number_total_rows} rows where {options.rows} were "
                "sent: a request of an earlier attempt came late; it is rolled back",
            )
            return self._ended(db, label, failed)
        return _answer(prepared, label)

    def commit_label(self, db: str, label: str) -> TwoPhaseAnswer:
        return _second_phase(self._transaction("commit", db, label))

    def roll_back(self, db: str, label: str) -> TwoPhaseAnswer:
        return _second_phase(self._transaction("rollback", db, label))

    def mark(self, db: str, table: str, label: str) -> bool:
        self._transaction("begin", db, label, table=table, timeout=str(int(ASK_TIMEOUT_S)))
        self._transaction("rollback", db, label)
        return self.state(db, label) in (LoadState.VISIBLE, LoadState.ABORTED)

    def state(self, db: str, label: str) -> LoadState:
        path = f"/api/{quote(db, safe='')}/get_load_state"
        answer = self._front_ends.ask("GET", path, _State, params={"label": label})
        if answer.state is None:
            raise Refused(
                f"the front end refuses the state of label {label}", found=f"{answer.status}: {answer.msg}"
            )
        return _STATES.get(answer.state) or known_state(label, answer.state)

    def keeps_labels(self) -> bool:
        return False

    def _ended(self, db: str, label: str, answer: LoadAnswer) -> LoadAnswer:
        """Roll back what a failed load has left, so that nobody waits for its timeout."""
        self._transaction("rollback", db, label)
        return answer

    def _transaction(
        self, operation: str, db: str, label: str, *, timeout_s: float = ASK_TIMEOUT_S, **headers: str
    ) -> TransactionAnswer:
        sent: dict[str, Any] = {"label": label, "db": db, **headers}
        path = f"/api/transaction/{operation}"
        return self._front_ends.ask("POST", path, TransactionAnswer, headers=sent, timeout=timeout_s)


def _answer(answer: TransactionAnswer, label: str) -> LoadAnswer:
    """Return the answer as one of Stream Load."""
    exists = answer.status == LABEL_EXISTS
    return LoadAnswer(
        txn_id=answer.txn_id,
        label=label,
        two_phase_commit="true",
        status="Label Already Exists" if exists else "Success" if answer.status == OK else "Fail",
        existing_job_status=answer.existing_job_status,
        message=answer.message or answer.status,
        number_total_rows=answer.number_total_rows,
        number_loaded_rows=answer.number_loaded_rows,
        number_filtered_rows=answer.number_filtered_rows,
        number_unselected_rows=answer.number_unselected_rows,
        load_bytes=answer.load_bytes,
        error_url=answer.error_url,
    )


def _second_phase(answer: TransactionAnswer) -> TwoPhaseAnswer:
    return TwoPhaseAnswer("Success" if answer.status == OK else "Fail", answer.message or answer.status)
