"""The listener that loads a stored table: each load once, whatever is killed when.

    1. note the label and its events in the journal      crash: 3, by whoever comes next
    2. load under the label                              no answer, crash: 3
    3. request the label's state                         it says what became of the load
    4. note that in the journal                          crash: 3 again

A request names the instant after which it is not taken any more, give or take a minute by which clocks are
apart; until then a label that nobody knows, or whose load was aborted, may still be used by an earlier
request. So whoever finds such a one waits that long, and labels are given back only then. Nothing is loaded
while a load is open: its events may be those that come next.
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
from rtolap.sep.delivery.edit_records import I64
from rtolap.sep.delivery.journal import Journal, LoadBegun, LoadEnded
from rtolap.sep.delivery.poison import held_back
from rtolap.sep.listeners.listener import EventGroup, Failure, Mask, Outcome
from rtolap.sep.listeners.table_rows import TableLoad, TableRows

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 60
TRIES: Final = 3
CLOCKS_APART_MS: Final = 60_000
_LOADED = (LoadState.COMMITTED, LoadState.VISIBLE)


class LoadEndpoint(Protocol):
    """The part of `protocols.stream_load` that the listener needs."""

    def load(
        self, db: str, table: str, label: str, body: bytes, options: SendOptions, *, two_phase: bool = False
    ) -> LoadAnswer: ...

    def state(self, db: str, label: str) -> LoadState: ...

    def keeps_labels(self) -> bool: ...

    def acknowledge(self, db: str, labels: list[str]) -> None: ...

    def close(self) -> None: ...


class StoredTableListener:
    """Listener."""

    def __init__(
        self, endpoint: LoadEndpoint, database: str, table: str, rows: TableRows, clock: Clock, prefix: str
    ) -> None:
        self._endpoint = endpoint
        self._database, self._table = database, table
        self._rows = rows
        self._clock = clock
        self._prefix = prefix
        self._journal: Journal | None = None
        self._keeps_labels = endpoint.keeps_labels()

    def deliver(self, group: EventGroup) -> Outcome:
        assert self._journal is not None, "recover comes first"
        assert not self._journal.open_loads, "their events may be in the group"
        self._give_labels_back(self._journal)
        batch = group.batch
        outcome = Outcome(np.zeros(batch.num_events, bool))
        loads, refused = self._rows.loads(batch, group.late)
        outcome.failures |= {place: Failure(reason, final=True) for place, reason in refused.items()}
        held = held_back(batch, set(refused))
        for load in loads:
            for some in _parts(load, group.singly, held):
                places = load.places[some]
                failure = self._load(self._journal, group, load, some)
                if failure is None:
                    outcome.delivered[places] = True
                    continue
                for place in places.tolist():
                    outcome.failures[place] = Failure(failure, alone=len(places) == 1)
                return outcome
        return outcome

    def recover(self, journal: Journal) -> None:
        """Unavailable: what became of a load is not known yet."""
        self._journal = journal
        for begun in list(journal.open_loads.values()):
            asked_ms = self._clock.now_ms()
            state = self._endpoint.state(self._database, begun.label)
            self._settle(journal, begun, state, asked_ms, is_refused=False)

    def close(self) -> None:
        self._endpoint.close()

    def _load(self, journal: Journal, group: EventGroup, load: TableLoad, some: I64) -> str | None:
        """Return why the rows were not taken, None where they were. Unavailable: that is not known yet."""
        mask = np.zeros(group.batch.num_events, bool)
        mask[load.places[some]] = True
        label = f"{self._prefix}_{uuid.uuid4().hex}"
        edits = tuple(group.edits(mask))
        body = _arrow(load.rows.take(pa.array(some)))
        for number in range(1, TRIES + 1):
            begun = LoadBegun(label, self._clock.now_ms() + TIMEOUT_S * 1000, edits, number)
            journal.write([begun])
            reason = self._send(begun, load, body)
            asked_ms = self._clock.now_ms()
            state = self._endpoint.state(self._database, label)
            if state is LoadState.UNKNOWN and reason is None and number < TRIES:
                continue  # it may have been lost on its way: the label takes the same rows once
            if self._settle(journal, begun, state, asked_ms, is_refused=reason is not None):
                group.noted(mask)
                return None
            break
        return reason or "the load was aborted"

    def _send(self, begun: LoadBegun, load: TableLoad, body: bytes) -> str | None:
        """Return the words of a refusal; None where it was taken, or nothing is known."""
        headers = {"merge_type": "DELETE"} if load.deletes else {}
        if load.partial:
            headers["partial_columns"] = "true"
        options = SendOptions(
            format="arrow",
            columns=tuple(load.rows.schema.names),
            timeout_s=TIMEOUT_S,
            keep_label=self._keeps_labels,
            not_after_ms=begun.not_after_ms,
            headers=headers,
        )
        try:
            answer = self._endpoint.load(self._database, self._table, begun.label, body, options)
        except Unavailable as error:
            log.warning("load %s: %s", begun.label, error)
            return None
        except Refused as error:
            return str(error)
        return answer.message if answer.status == "Fail" else None

    def _settle(
        self, journal: Journal, begun: LoadBegun, state: LoadState, asked_ms: int, *, is_refused: bool
    ) -> bool:
        """Note what became of a load, and return whether it was taken. Unavailable: not to be known yet.

        `asked_ms`: when its state was asked for. `is_refused`: the last request was, so that it is not on its
        way any more.
        """
        if state in (LoadState.UNKNOWN, LoadState.ABORTED):
            left_ms = begun.not_after_ms + CLOCKS_APART_MS - asked_ms
            is_only_request_over = begun.requests == 1 and (is_refused or state is LoadState.ABORTED)
            if left_ms >= 0 and not is_only_request_over:
                raise Unavailable(
                    f"a request of load {begun.label} may still be on its way",
                    found=state,
                    action=f"it is not taken any more in {left_ms / 1000:.0f} s",
                )
        elif state not in _LOADED:
            raise Unavailable(f"load {begun.label} is not done", found=state, action="wait")
        delivered = state in _LOADED
        journal.write([LoadEnded(begun.label, delivered)])
        return delivered

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
            if self._keeps_labels:
                self._endpoint.acknowledge(self._database, due)
        except RtolapError as error:
            log.info("%d labels stay for now: %s", len(due), error)
            return
        for label in due:
            del journal.ended_loads[label]


def _parts(load: TableLoad, singly: Mask, held: Mask) -> list[I64]:
    """Rows of the load that go together: those that failed before go alone, and held ones do not go."""
    free = np.flatnonzero(~held[load.places])
    alone = singly[load.places[free]]
    if not alone.any():
        return [free] if len(free) else []
    borders = np.flatnonzero(alone | np.concatenate(([False], alone[:-1])))
    return [part for part in np.split(free, borders) if len(part)]


def _arrow(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return bytes(sink.getvalue())
