"""Batches of events: choosing and joining keeps every cell with its event."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from rtolap.sep.events.edit_batch import CELLS_SCHEMA, EVENTS_SCHEMA, EditBatch, concat, empty_batch


def batch(table: str, cell_counts: list[int], seed: int = 0) -> EditBatch:
    """So many events; the values of cells name table, event and cell."""
    starts = np.cumsum([0, *cell_counts])[:-1]
    count = len(cell_counts)
    events = [
        pa.array([table] * count).dictionary_encode(),
        pa.array([f"region-{table}"] * count).dictionary_encode(),
        pa.array(range(seed, seed + count), pa.int64()),
        pa.array([1_700_000_000_000] * count, pa.int64()),
        pa.array([f"row-{number}".encode() for number in range(count)], pa.binary()),
        pa.array([["cluster"]] * count, pa.list_(pa.string())),
        pa.array(starts, pa.int32()),
        pa.array(cell_counts, pa.int32()),
    ]
    owners = [event for event, cells in enumerate(cell_counts) for _ in range(cells)]
    values = [f"{table}-{event}-{cell}" for event, cells in enumerate(cell_counts) for cell in range(cells)]
    cells = [
        pa.array(owners, pa.int32()),
        pa.array([f"f{event % 2}".encode() for event in owners], pa.binary()).dictionary_encode(),
        pa.array([b"q"] * len(owners), pa.binary()),
        pa.array([1] * len(owners), pa.int64()),
        pa.array([4] * len(owners), pa.uint8()),
        pa.array([value.encode() for value in values], pa.binary()),
        pa.array([b""] * len(owners), pa.binary()),
    ]
    return EditBatch(
        pa.RecordBatch.from_arrays(events, schema=EVENTS_SCHEMA),
        pa.RecordBatch.from_arrays(cells, schema=CELLS_SCHEMA),
    )


def values_by_event(edits: EditBatch) -> list[list[str]]:
    """The values of each event's cells, and that both references between events and cells agree."""
    owners, values = edits.cells["event"].to_pylist(), edits.cells["value"].to_pylist()
    events = edits.events.to_pylist()
    for number, event in enumerate(events):
        places = range(event["first_cell"], event["first_cell"] + event["cell_count"])
        assert all(owners[place] == number for place in places)
    return [
        [value.decode() for value in values[event["first_cell"] : event["first_cell"] + event["cell_count"]]]
        for event in events
    ]


def test_events_are_taken_in_any_order_with_their_cells() -> None:
    taken = batch("t", [2, 1, 0, 3]).take(np.array([3, 0, 2]))
    assert values_by_event(taken) == [["t-3-0", "t-3-1", "t-3-2"], ["t-0-0", "t-0-1"], []]
    assert taken.events.schema == EVENTS_SCHEMA
    assert taken.cells.schema == CELLS_SCHEMA


def test_neighbouring_events_are_cut_out_with_their_cells() -> None:
    edits = batch("t", [2, 1, 0, 3])
    assert values_by_event(edits.slice(1, 3)) == [["t-1-0"], [], ["t-3-0", "t-3-1", "t-3-2"]]
    assert values_by_event(edits.slice(1, 3).slice(2, 1)) == [["t-3-0", "t-3-1", "t-3-2"]]
    assert values_by_event(edits.slice(1, 3).take(np.array([2, 0]))) == [values_by_event(edits)[3], ["t-1-0"]]
    assert values_by_event(concat([edits.slice(2, 2), edits.slice(0, 1)])) == [
        *values_by_event(edits)[2:],
        *values_by_event(edits)[:1],
    ]
    assert edits.slice(4, 1).num_events == 0
    assert edits.slice(0, 2).events.schema == EVENTS_SCHEMA
    assert edits.slice(0, 2).cells.schema == CELLS_SCHEMA


def test_a_filter_keeps_the_events_of_the_mask() -> None:
    edits = batch("t", [1, 2, 1])
    assert values_by_event(edits.filter(np.array([False, True, False]))) == [["t-1-0", "t-1-1"]]
    assert edits.filter(np.array([True, True, True])) is edits
    assert edits.filter(np.array([False, False, False])).num_events == 0
    with pytest.raises(ValueError, match="expected a mask of 3 events"):
        edits.filter(np.array([True]))


def test_batches_of_different_tables_are_joined() -> None:
    joined = concat([batch("a", [1, 2]), empty_batch(), batch("b", [1], seed=7)])
    assert joined.events["table"].to_pylist() == ["a", "a", "b"]
    assert joined.events["sequence_id"].to_pylist() == [0, 1, 7]
    assert joined.cells["family"].to_pylist() == [b"f0", b"f1", b"f1", b"f0"]
    assert values_by_event(joined) == [["a-0-0"], ["a-1-0", "a-1-1"], ["b-0-0"]]
    assert joined.events.schema == EVENTS_SCHEMA
    assert joined.cells.schema == CELLS_SCHEMA


def test_nothing_joined_is_the_empty_batch() -> None:
    assert concat([]).num_events == 0
    assert concat([empty_batch(), empty_batch()]).num_cells == 0
