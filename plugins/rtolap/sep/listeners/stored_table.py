"""The listener that loads a stored table: each load once, whatever is killed when.

    1. note the label and its events in the journal      crash: 3, by whoever comes next
    2. load under the label                              no answer, a refusal, crash: 3
    3. close the label                                   says whether it was loaded; from now on it never is
    4. note that in the journal                          crash: 3 again

A load that the front end confirms needs no 3. A front end that was killed may have begun a load, and a
request may still be on its way: closing the label aborts the one and keeps the other out, so that the same
events may go under another label at once. Nothing is loaded while a load is open.

A load that failed for what its rows hold is tried again event by event, and counts as a try. One that the
cluster could not take, for want of storage nodes say, costs no event a try: everything waits.

A closed label is given back when no request under it is taken any more: each names the instant after which it
is not, give or take a minute by which clocks are apart.
"""

from __future__ import annotations

import logging
import uuid
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from rtolap.base.clock import Clock
from rtolap.base.errors import Refused, RtolapError, Unavailable
from rtolap.protocols.stream_load.messages import LoadAnswer, LoadState, SendOptions
from rtolap.sep.delivery.journal import Journal, LoadBegun, LoadEnded
from rtolap.sep.delivery.listener import DeliveryOutcome, EventGroup, Failure, Mask
from rtolap.sep.delivery.poison import blocked_events
from rtolap.sep.delivery.row_ranges import CLOCKS_APART_MS
from rtolap.sep.listeners.table_rows import PreparedRows, TableLoad, TableRows

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 60
TRIES: Final = 3


class LoadEndpoint(Protocol):
    """The part of `protocols.stream_load` that the listener needs, of a front end that keeps labels."""

    def load(
        self, db: str, table: str, label: str, body: bytes, options: SendOptions, *, two_phase: bool = False
    ) -> LoadAnswer: ...

    def close_label(self, db: str, label: str) -> LoadState: ...

    def acknowledge(self, db: str, labels: list[str]) -> None: ...

    def close(self) -> None: ...


class StoredTableListener:
    """A listener that loads into a stored table."""

    def __init__(
        self, endpoint: LoadEndpoint, database: str, table: str, rows: TableRows, clock: Clock, prefix: str
    ) -> None:
        self._endpoint = endpoint
        self._database, self._table = database, table
        self._rows = rows
        self._clock = clock
        self._prefix = prefix
        self._journal: Journal | None = None

    def deliver(self, group: EventGroup) -> DeliveryOutcome:
        assert self._journal is not None, "recover comes first"
        assert not self._journal.open_loads, "their events may be in the group"
        self._give_labels_back(self._journal)
        outcome = DeliveryOutcome(np.zeros(group.batch.num_events, bool))
        try:
            for prepared in self._rows.prepared(group.batch, group.late):
                self._deliver(self._journal, group, prepared, outcome)
                if any(not failure.final for failure in outcome.failures.values()):
                    break  # a load was refused: the next pass finds out for which of its rows
        except Unavailable as error:
            outcome.away = error
        return outcome

    def _deliver(
        self, journal: Journal, group: EventGroup, prepared: PreparedRows, outcome: DeliveryOutcome
    ) -> None:
        batch = group.batch
        outcome.failures |= {place: Failure(reason, final=True) for place, reason in prepared.refused.items()}
        blocked = blocked_events(batch, set(prepared.refused))
        for load in prepared.loads:
            for part in _parts(load, group.singly, blocked):
                failure = self._load(journal, group, part)
                if failure is None:
                    outcome.delivered[part.places] = True
                    continue
                for place in part.places.tolist():
                    outcome.failures[place] = Failure(failure, alone=part.rows.num_rows == 1)
                return

    @property
    def mirrors_rows(self) -> bool:
        return self._rows.is_unique

    def recover(self, journal: Journal) -> None:
        """Recover. Raises Unavailable where the outcome of a load is not known yet."""
        self._journal = journal
        for label in list(journal.open_loads):
            self._close_label(journal, label)

    def close(self) -> None:
        self._endpoint.close()
        self._rows.close()

    def _load(self, journal: Journal, group: EventGroup, load: TableLoad) -> str | None:
        """Return why the rows were refused for what they hold, None where they were taken. Unavailable: the
        cluster cannot take them now, whatever they hold, or it is not known yet whether it has."""
        mask = np.zeros(group.batch.num_events, bool)
        mask[load.places] = True
        if not load.rows.num_rows:
            group.commit(mask, ())
            return None
        edits = tuple(group.edits(mask))
        number = 0 if load.number_column is None else journal.next_load_number(self._clock.now_ms())
        rows = _numbered(load.rows, load.number_column, number)
        body = _arrow(rows)
        for _ in range(TRIES):
            label = f"{self._prefix}_{uuid.uuid4().hex}"
            begun = LoadBegun(label, self._clock.now_ms() + TIMEOUT_S * 1000, edits, number)
            journal.write([begun])
            answer = self._send(begun, load, tuple(rows.schema.names), body)
            if answer is not None and answer.is_durable:
                journal.write([LoadEnded(label, delivered=True)])
                is_taken = True
            else:
                is_taken = self._close_label(journal, label)
            if is_taken:
                group.noted(mask)
                return None
            if answer is not None and answer.refuses_rows:
                return answer.message
            if answer is not None and answer.status == "Fail":
                raise Unavailable(
                    f"loads into {self._database}.{self._table} are not taken now",
                    found=answer.message,
                    action="look at the table and at the storage nodes",
                )
        raise Unavailable(
            f"loads into {self._database}.{self._table} are not answered",
            found=f"{TRIES} loads, none of them taken",
            action="look at the front ends",
        )

    def _send(
        self, begun: LoadBegun, load: TableLoad, columns: tuple[str, ...], body: bytes
    ) -> LoadAnswer | None:
        """Return None where there is no answer."""
        headers = {"merge_type": "DELETE"} if load.deletes else {}
        if load.partial:
            headers["partial_columns"] = "true"
        options = SendOptions(
            format="arrow",
            columns=columns,
            timeout_s=TIMEOUT_S,
            keep_label=True,
            not_after_ms=begun.not_after_ms,
            headers=headers,
        )
        try:
            return self._endpoint.load(self._database, self._table, begun.label, body, options)
        except Unavailable as error:
            log.warning("load %s: %s", begun.label, error)
            return None
        except Refused as error:
            return LoadAnswer(label=begun.label, message=str(error), code=error.code)

    def _close_label(self, journal: Journal, label: str) -> bool:
        """Note the final outcome of a load; return True if it was taken. Raises Unavailable where the outcome
        is not known yet."""
        state = self._endpoint.close_label(self._database, label)
        is_taken = state is not LoadState.ABORTED
        journal.write([LoadEnded(label, is_taken)])
        return is_taken

    def _give_labels_back(self, journal: Journal) -> None:
        now_ms = self._clock.now_ms()
        due = [
            label
            for label, not_after_ms in journal.ended_loads.items()
            if now_ms > not_after_ms + CLOCKS_APART_MS
        ]
        if not due:
            return
        try:
            self._endpoint.acknowledge(self._database, due)
        except RtolapError as error:
            log.info("%d labels stay for now: %s", len(due), error)
            return
        for label in due:
            del journal.ended_loads[label]


def _parts(load: TableLoad, singly: Mask, blocked: Mask) -> list[TableLoad]:
    """Return rows of the load that go together: those with an event that failed before go alone, those with
    one that is held back do not go."""
    if not singly.any() and not blocked.any():
        return [load]
    rows = np.arange(load.rows.num_rows)
    free = rows[~np.isin(rows, load.row_of[blocked[load.places]])]
    alone = np.isin(free, load.row_of[singly[load.places]])
    borders = np.flatnonzero(alone | np.concatenate(([False], alone[:-1]))[: len(free)])
    return [load.take(part) for part in np.split(free, borders) if len(part)]


def _numbered(rows: pa.RecordBatch, column: str | None, number: int) -> pa.RecordBatch:
    if column is None:
        return rows
    return rows.append_column(column, pa.array(np.full(rows.num_rows, number, np.int64)))


def _arrow(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return bytes(sink.getvalue())
