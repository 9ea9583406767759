"""Cells of WAL entries → events: an event for each row of each entry."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class EventGroups:
    """`entry`: of each event. `row`: of each event. `first_cell`, `cell_count`: where its cells stand.

    `order`: where each cell stood before; None if all stay where they are.
    """

    entry: Places
    row: pa.BinaryArray
    first_cell: Places
    cell_count: Places
    order: Places | None


def group_by_entry_and_row(entry_of_cell: Places, rows: pa.BinaryArray) -> EventGroups:
    """`entry_of_cell` ascends; `rows[i]` is the row of cell i. Events stand in the order of first cells.

    Neighbours of one entry and row are one run of cells. Only where the same row comes again within an entry,
    after another one, do cells move.
    """
    cell_total = len(entry_of_cell)
    if not cell_total:
        none = np.empty(0, np.int64)
        return EventGroups(none, rows, none, none, None)
    new_entry = entry_of_cell[1:] != entry_of_cell[:-1]
    new_row = pc.not_equal(rows[1:], rows[:-1]).to_numpy(zero_copy_only=False)
    run_starts = np.concatenate([[0], np.flatnonzero(new_entry | new_row) + 1])
    run_cells = np.diff(run_starts, append=cell_total)
    run_entry = entry_of_cell[run_starts]
    run_rows = rows if len(run_starts) == cell_total else rows.take(pa.array(run_starts))
    one_run_each = len(run_starts) == np.count_nonzero(new_entry) + 1
    event_of_run = None if one_run_each else _events_where_rows_return(run_entry, run_rows)
    if event_of_run is None:
        return EventGroups(run_entry, run_rows, run_starts, run_cells, None)
    event_total = int(event_of_run.max()) + 1
    first_run = np.full(event_total, len(event_of_run), np.int64)
    np.minimum.at(first_run, event_of_run, np.arange(len(event_of_run)))
    cell_count = np.zeros(event_total, np.int64)
    np.add.at(cell_count, event_of_run, run_cells)
    order = np.argsort(np.repeat(event_of_run, run_cells), kind="stable")
    return EventGroups(
        run_entry[first_run],
        run_rows.take(pa.array(first_run)),
        np.cumsum(cell_count) - cell_count,
        cell_count,
        order,
    )


def _events_where_rows_return(run_entry: Places, run_rows: pa.BinaryArray) -> Places | None:
    """Number the pairs of entry and row in the order of their first appearance; None if each appears once."""
    rows = run_rows.dictionary_encode()
    pairs = run_entry * len(rows.dictionary) + rows.indices.to_numpy()
    numbered = pa.array(pairs).dictionary_encode()
    if len(numbered.dictionary) == len(pairs):
        return None
    numbers: Places = numbered.indices.to_numpy().astype(np.int64)
    return numbers
