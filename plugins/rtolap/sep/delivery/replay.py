"""Dead letters delivered after all: those of rows that are set apart, and those that a policy has skipped.

    letters are read in their order, some at a time; what was replayed before is left out
    the listener delivers them; each is noted in the journal as every event is, so it is delivered once
    a letter that fails keeps back later ones of its row
    a row without letters that are left is set apart no more

An event of a replay is known by its letter's offset, as an edit of the region `REPLAYED`, which no region of
HBase is named as.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from rtolap.kafka.transactions import OutColumns
from rtolap.sep.delivery.edit_records import I64, RegionEdits, bitmap_of, ids_of, packed
from rtolap.sep.delivery.journal import Delivered, Journal, RowBack, RowKey
from rtolap.sep.delivery.letters import Letters, read_letters
from rtolap.sep.delivery.listener import EventGroup, Listener, Mask
from rtolap.sep.events.edit_batch import CELLS_SCHEMA, EVENTS_SCHEMA, EditBatch

log = logging.getLogger(__name__)

REPLAYED, VERIFIED = "dead-letters", "verify"
_TIMEOUT_S = 60.0


@dataclass
class Replayed:
    """The result of a replay.

    Attributes:
        delivered: the number of letters that were delivered.
        back: the number of rows that are no longer set apart.
        failed: the rows of letters that failed, with the reasons.
    """

    delivered: int = 0
    back: int = 0
    failed: dict[RowKey, str] = field(default_factory=dict)


def replay(journal: Journal, listener: Listener, topic: str, *, skipped: bool = False) -> Replayed:
    """Deliver what there is to deliver. `skipped`: letters of skipped events too, as late.

    Raises what the listener and the journal do: what was delivered by then is noted.
    """
    outcome = Replayed()
    apart = dict(journal.apart)
    if not apart and not skipped:
        return outcome
    consumer = journal.open_consumer(topic)
    try:
        partition = journal.share.number
        known = consumer.log_range(partition, _TIMEOUT_S)
        start = known.start if skipped else min(row.first_offset for row in apart.values())
        begin = max(start, known.start)
        for letters in read_letters(consumer, begin, known.end, partition=partition):
            _deliver(journal, listener, letters, outcome, skipped=skipped)
    finally:
        consumer.close()
    back = [RowBack(row.table, row.row, row.id) for key, row in apart.items() if key not in outcome.failed]
    if back:
        journal.write(back)
        outcome.back = len(back)
    return outcome


def read_again(
    journal: Journal, listener: Listener, table: str, rows: Sequence[bytes], now_ms: int
) -> dict[bytes, str]:
    """Make a listener that mirrors rows read these from HBase again; return the failed ones with the reasons.

    Raises what the listener raises.
    """
    known = {"table": table, "region": VERIFIED, "sequence_id": 0, "write_time_ms": now_ms, "cluster_ids": []}
    events = [
        {**known, "row": row, "first_cell": at, "cell_count": 1} for at, row in enumerate(dict.fromkeys(rows))
    ]
    cell = {"family": b"", "qualifier": b"", "timestamp_ms": now_ms, "type": 4, "value": b"", "tags": b""}
    cells = [{"event": at, **cell} for at in range(len(events))]
    batch = EditBatch(
        pa.RecordBatch.from_pylist(events, schema=EVENTS_SCHEMA),
        pa.RecordBatch.from_pylist(cells, schema=CELLS_SCHEMA),
    )
    alone = np.zeros(batch.num_events, bool)
    left = np.ones(batch.num_events, bool)
    failed: dict[bytes, str] = {}
    while left.any():
        places = np.flatnonzero(left)
        group = EventGroup(
            batch.take(places),
            np.zeros(len(places), bool),
            alone[places],
            np.full(len(places), np.inf),
            commit=lambda mask, columns: None,
            edits=lambda mask: [],
            noted=lambda mask: None,
        )
        outcome = listener.deliver(group)
        left[places[outcome.delivered]] = False
        if outcome.away is not None:
            raise outcome.away
        for at, failure in outcome.failures.items():
            if failure.alone or failure.final:
                failed[rows_of(batch)[places[at]][1]] = failure.reason
                left[places[at]] = False
            else:
                alone[places[at]] = True
    return failed


def _deliver(
    journal: Journal, listener: Listener, letters: Letters, outcome: Replayed, *, skipped: bool
) -> None:
    ids = {row.id for row in journal.apart.values()}
    done = set(ids_of(journal.delivered_of(REPLAYED) & bitmap_of(letters.offsets)).tolist())
    rows = rows_of(letters.batch)
    due = np.array(
        [
            offset not in done and (apart in ids or (skipped and not apart and row not in journal.apart))
            for offset, apart, row in zip(letters.offsets.tolist(), letters.apart, rows, strict=True)
        ],
        bool,
    )
    late = np.array(
        [flag or not apart for flag, apart in zip(letters.late, letters.apart, strict=True)], bool
    )
    alone = np.zeros(len(due), bool)
    while True:
        due &= np.array([row not in outcome.failed for row in rows], bool)
        if not due.any():
            return
        places = np.flatnonzero(due)
        group = _group(
            journal, letters.batch.take(places), late[places], alone[places], letters.offsets[places]
        )
        result = listener.deliver(group)
        outcome.delivered += int(result.delivered.sum())
        due[places[result.delivered]] = False
        if result.away is not None:
            raise result.away
        if not result.delivered.any() and not result.failures:
            return
        for at, failure in result.failures.items():
            if failure.alone or failure.final:
                outcome.failed.setdefault(rows[places[at]], failure.reason)
            else:  # it failed in company: by itself the next time
                alone[places[at]] = True


def _group(journal: Journal, batch: EditBatch, late: Mask, alone: Mask, offsets: I64) -> EventGroup:
    written_ms = batch.events["write_time_ms"].to_numpy()

    def edits(mask: Mask) -> list[RegionEdits]:
        return [RegionEdits(REPLAYED, packed(bitmap_of(offsets[mask])), int(written_ms[mask].max()))]

    def commit(mask: Mask, columns: Sequence[OutColumns]) -> None:
        if mask.any():
            journal.write([Delivered(tuple(edits(mask)))], columns)

    forever_s = np.full(batch.num_events, np.inf)
    return EventGroup(batch, late, alone, forever_s, commit=commit, edits=edits, noted=lambda mask: None)


def rows_of(batch: EditBatch) -> list[RowKey]:
    return list(zip(batch.events["table"].to_pylist(), batch.events["row"].to_pylist(), strict=True))
