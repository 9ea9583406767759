"""A ReplicateWALEntry call → its events in columns.

What HBase ships is more than what a subscription wants: edits older than its start come with the first log of
a new peer, and cells of the family METAFAMILY (bulk loads, flushes, compactions, openings of regions) tell of
regions, not of rows. Both are counted and left out, the latter unless they are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rtolap.base.errors import Corrupted
from rtolap.sep.events.cells import CellBlock, decode_cells
from rtolap.sep.events.edit_batch import CELLS_SCHEMA, EVENTS_SCHEMA, EditBatch, empty_batch
from rtolap.sep.events.entries import EntryColumns, decode_entries
from rtolap.sep.events.filters import EditFilter
from rtolap.sep.events.grouping import group_by_entry_and_row

METAFAMILY: Final = b"METAFAMILY"

MetaCells = Literal["skip", "event"]
Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DecodedCall:
    """The events that are wanted, and counts of what else the call held.

    `entries_before_start`: entries written before the subscription's start. `meta_cells_skipped`: cells of
    METAFAMILY. `events_filtered`: events of which the filters left no cell.
    """

    batch: EditBatch
    entries: int
    entries_before_start: int = 0
    meta_cells_skipped: int = 0
    events_filtered: int = 0


class EditDecoder:
    """Decodes the calls of one subscription; keeps nothing between them, any thread may call.

    `start_ms`: entries written before are left out. `meta_cells`: "event" makes events of cells of METAFAMILY
    too. `filters` apply in their order.
    """

    def __init__(
        self,
        *,
        start_ms: int | None = None,
        meta_cells: MetaCells = "skip",
        filters: Sequence[EditFilter] = (),
    ) -> None:
        self._start_ms = start_ms
        self._skips_meta_cells = meta_cells == "skip"
        self._filters = tuple(filters)

    def decode(
        self, parameter: bytes | bytearray | memoryview, cell_block: bytes | bytearray | memoryview
    ) -> DecodedCall:
        """`parameter` is the call's ReplicateWALEntryRequest as bytes.

        Corrupted: either of both cannot be read, or they contradict each other.
        """
        entries, cells = decode_entries(parameter), decode_cells(cell_block)
        claimed = int(entries.cell_count.sum())
        if claimed != len(cells):
            raise Corrupted(
                "a call's entries and its cell block contradict each other",
                expected=f"{claimed} cells, as the entries say",
                found=len(cells),
            )
        if not len(cells):
            return DecodedCall(empty_batch(), len(entries))
        before_start, meta_cells = 0, 0
        families = cells.families().dictionary_encode()
        wanted = np.ones(len(cells), bool)
        if self._start_ms is not None:
            old = entries.write_time_ms < self._start_ms
            if before_start := int(np.count_nonzero(old)):
                wanted &= ~np.repeat(old, entries.cell_count)
        if self._skips_meta_cells and METAFAMILY in (names := families.dictionary.to_pylist()):
            is_meta = families.indices.to_numpy() == names.index(METAFAMILY)
            meta_cells = int(np.count_nonzero(is_meta))
            wanted &= ~is_meta
        places = None if wanted.all() else np.flatnonzero(wanted)
        batch = _batch(entries, cells, families, places)
        made = batch.num_events
        for edit_filter in self._filters:
            batch = edit_filter(batch)
        return DecodedCall(batch, len(entries), before_start, meta_cells, made - batch.num_events)


def _batch(
    entries: EntryColumns, cells: CellBlock, families: pa.DictionaryArray, places: Places | None
) -> EditBatch:
    """Build the batch of the cells at `places`, of all where it is None."""
    entry_of_cell = np.repeat(np.arange(len(entries)), entries.cell_count)
    if places is not None:
        entry_of_cell = entry_of_cell[places]
    groups = group_by_entry_and_row(entry_of_cell, cells.rows(places))
    if groups.order is not None:
        places = groups.order if places is None else places[groups.order]
    of_entry = pa.array(groups.entry)
    events = [
        entries.table.take(of_entry),
        entries.region.take(of_entry),
        pa.array(entries.sequence_id[groups.entry]),
        pa.array(entries.write_time_ms[groups.entry]),
        groups.row,
        entries.cluster_ids.take(of_entry),
        pa.array(groups.first_cell.astype(np.int32)),
        pa.array(groups.cell_count.astype(np.int32)),
    ]
    event_of_cell = np.repeat(np.arange(len(groups.entry), dtype=np.int32), groups.cell_count)
    columns = [
        pa.array(event_of_cell),
        families if places is None else families.take(pa.array(places)),
        cells.qualifiers(places),
        pa.array(cells.timestamp_ms if places is None else cells.timestamp_ms[places]),
        pa.array(cells.type if places is None else cells.type[places]),
        cells.values(places),
        cells.tags(places) if cells.has_tags else _no_tags(len(event_of_cell)),
    ]
    return EditBatch(
        pa.RecordBatch.from_arrays(events, schema=EVENTS_SCHEMA),
        pa.RecordBatch.from_arrays(columns, schema=CELLS_SCHEMA),
    )


def _no_tags(count: int) -> pa.BinaryArray:
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(bytes(4 * (count + 1))), pa.py_buffer(b"")]
    )
