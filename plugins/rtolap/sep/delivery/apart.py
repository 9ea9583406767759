"""Rows that are set apart: their events go to the dead letters, in order, until they can be delivered.

That a row is apart stands in the journal before the first of its letters is written, so a process that takes
over goes on with it. `replay` brings rows back. docs/decisions/0016-rows-apart.md says why.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow.compute as pc

from rtolap.base.clock import Clock
from rtolap.kafka.transactions import OutColumns
from rtolap.sep.delivery.delivered_edits import Mask
from rtolap.sep.delivery.journal import Journal, RowApart, RowKey
from rtolap.sep.delivery.letters import dead_letters
from rtolap.sep.events.edit_batch import EditBatch

log = logging.getLogger(__name__)

ROWS_APART_MAX: Final = 100_000  # bad events of more rows hold up their calls
LETTERS_BYTES_MAX: Final = 32 << 20  # of cells in one transaction
_CELL_BYTES: Final = 100  # of a cell beside its value, about


def set_rows_apart(journal: Journal, clock: Clock, topic: str, reasons: Mapping[RowKey, str]) -> bool:
    """Note the rows as set apart; return True if any is. Their events are still to be written."""
    free = max(0, ROWS_APART_MAX - len(journal.apart))
    if not reasons or not free:
        return False
    now_ms, offset = clock.now_ms(), journal.end_of(topic)
    records = [
        RowApart(table, row, uuid.uuid4().hex, now_ms, offset, reason)
        for (table, row), reason in list(reasons.items())[:free]
    ]
    journal.write(records)
    for record in records:
        log.warning("row %r of %s is set apart: %s", record.row, record.table, record.reason)
    return True


def letters_apart(
    journal: Journal, topic: str, batch: EditBatch, late: Mask
) -> Iterator[tuple[list[int], OutColumns]]:
    """Return the events of rows that are set apart, as places and letters: so many at a time as fit into one
    transaction, in their order."""
    apart = journal.apart
    rows = zip(batch.events["table"].to_pylist(), batch.events["row"].to_pylist(), strict=True)
    chosen = {place: apart[row] for place, row in enumerate(rows) if row in apart}
    for some in _by_bytes(batch, list(chosen)):
        yield (
            some,
            dead_letters(
                topic,
                batch,
                {place: chosen[place].reason for place in some},
                late={place: bool(late[place]) for place in some},
                apart={place: chosen[place].id for place in some},
                partition=journal.share.number,
            ),
        )


def letters_skipped(
    journal: Journal, topic: str, batch: EditBatch, late: Mask, reasons: Mapping[int, str]
) -> Iterator[tuple[list[int], OutColumns]]:
    """Yield letters as `letters_apart` does, for the events of `reasons`, which are given up."""
    for some in _by_bytes(batch, list(reasons)):
        chosen = {place: reasons[place] for place in some}
        flags = {place: bool(late[place]) for place in some}
        yield some, dead_letters(topic, batch, chosen, late=flags, partition=journal.share.number)


def _by_bytes(batch: EditBatch, places: Sequence[int]) -> Iterator[list[int]]:
    if not places:
        return
    sizes = np.zeros(batch.num_events, np.int64)
    values = pc.binary_length(batch.cells["value"]).to_numpy(zero_copy_only=False)
    np.add.at(sizes, batch.cells["event"].to_numpy(), values + _CELL_BYTES)
    some: list[int] = []
    size = 0
    for place in places:
        if some and size + sizes[place] > LETTERS_BYTES_MAX:
            yield some
            some, size = [], 0
        some.append(place)
        size += int(sizes[place])
    yield some
