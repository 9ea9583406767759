"""Filters on our side: by table and family, by row prefix, and by a function of the user."""

from __future__ import annotations

import numpy as np
import pyarrow.compute as pc
import pytest
from rtolap.base.errors import DefinitionError
from rtolap.sep.events.decode import EditDecoder
from rtolap.sep.events.edit_batch import EditBatch
from rtolap.sep.events.filters import EditFilter, EventMaskFilter, RowPrefixFilter, TableFilter

from tests.support.sep.wal_calls import Cell, Entry, encode_call

ENTRIES = [
    Entry((Cell(b"a1", b"1"), Cell(b"a1", b"2", family=b"d"), Cell(b"b1", b"3", family=b"d")), 1),
    Entry((Cell(b"a2", b"4"),), 2, table="shop:visits"),
    Entry((Cell(b"c1", b"5"), Cell(b"a3", b"6")), 3, table="other"),
]


def kept(*filters: EditFilter) -> tuple[list[tuple[bytes, int]], list[bytes], int]:
    """(rows and their count of cells), qualifiers in order, events that were filtered out."""
    call = EditDecoder(filters=filters).decode(*encode_call(ENTRIES))
    events = call.batch.events.to_pylist()
    places = [event["first_cell"] for event in events]
    assert places == [
        int(place) for place in np.cumsum([0, *(event["cell_count"] for event in events)])[: len(events)]
    ]
    owners = call.batch.cells["event"].to_pylist()
    assert owners == [number for number, event in enumerate(events) for _ in range(event["cell_count"])]
    rows = [(event["row"], event["cell_count"]) for event in events]
    return rows, call.batch.cells["qualifier"].to_pylist(), call.events_filtered


def test_tables_and_their_families() -> None:
    assert kept(TableFilter({"orders": [b"cf"], "shop:visits": []})) == (
        [(b"a1", 1), (b"a2", 1)],
        [b"1", b"4"],
        3,
    )
    assert kept(TableFilter({"orders": [], "shop:visits": [b"cf"], "other": []}))[2] == 0
    assert kept(TableFilter({"absent": []})) == ([], [], 5)


def test_prefixes_of_rows() -> None:
    assert kept(RowPrefixFilter([b"a2", b"b", b"a3"])) == (
        [(b"b1", 1), (b"a2", 1), (b"a3", 1)],
        [b"3", b"4", b"6"],
        2,
    )
    with pytest.raises(DefinitionError, match="expected one or more"):
        RowPrefixFilter([])


def test_a_function_of_the_user_after_another_filter() -> None:
    def many_cells(batch: EditBatch) -> np.ndarray:
        return np.asarray(pc.greater(batch.events["cell_count"], 1))

    assert kept(TableFilter({"orders": []}), EventMaskFilter("many", many_cells)) == (
        [(b"a1", 2)],
        [b"1", b"2"],
        4,
    )
    for wrong in (lambda batch: np.ones(1, bool), lambda batch: np.ones(batch.num_events)):
        with pytest.raises(DefinitionError, match="the filter wrong does not answer as a filter"):
            kept(EventMaskFilter("wrong", wrong))
