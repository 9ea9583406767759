"""The cell of an event that stands for a column, deletes of rows, and functions of users by their name."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints

import numpy as np
import pyarrow as pa
import pytest
from rtolap.base.errors import DefinitionError, NotFound
from rtolap.sep.events import entry_points
from rtolap.sep.events.columns import column_values, deciding_cells, deletes_families, only_deletes
from rtolap.sep.events.decode import EditDecoder
from rtolap.sep.events.edit_batch import EditBatch

from tests.support.sep.wal_calls import Cell, Entry, encode_call


def batch_of(*events: tuple[Cell, ...]) -> EditBatch:
    entries = [Entry(cells, number) for number, cells in enumerate(events)]
    return EditDecoder().decode(*encode_call(entries)).batch


def cell(value: bytes = b"", time: int = 5, kind: int = 4, qualifier: bytes = b"q") -> Cell:
    return Cell(b"r", qualifier, value, timestamp_ms=time, type=kind)


def test_the_newest_cell_says_what_an_event_put_into_a_column() -> None:
    edits = batch_of(
        (cell(b"old", 4), cell(b"new", 6), cell(b"older", 3)),
        (cell(b"first"), cell(b"last")),
        (cell(b"put"), cell(kind=12), cell(b"x", qualifier=b"other")),
        (cell(kind=8, time=4), cell(b"put", 5)),
        (cell(b"put", 4), cell(kind=14, time=5, qualifier=b"")),
        (cell(b"x", qualifier=b"other"),),
        (Cell(b"r", family=b"d", value=b"x"),),
        (cell(b""),),
    )
    assert column_values(edits, b"cf", b"q").to_pylist() == [
        *(b"new", b"last", None, b"put", None, None, None, b"")
    ]
    assert column_values(edits, b"absent", b"q").to_pylist() == [None] * 8


def test_a_delete_of_one_version_counts_against_that_version_alone() -> None:
    edits = batch_of(
        (cell(b"put", 4), cell(kind=8, time=5)),
        (cell(b"put", 5), cell(kind=8, time=5)),
        (cell(b"older", 4), cell(b"put", 5), cell(kind=8, time=5)),
        (cell(b"put", 4), cell(kind=10, time=5, qualifier=b"")),
        (cell(kind=8, time=5),),
        (cell(kind=12, time=5), cell(b"put", 6), cell(kind=8, time=6)),
    )
    values = column_values(edits, b"cf", b"q").to_pylist()
    assert values == [b"put", None, b"older", b"put", None, None]
    assert (deciding_cells(edits, b"cf", b"q") >= 0).all()


def test_deletes_are_told_from_puts_and_those_of_families_from_those_of_columns() -> None:
    edits = batch_of(
        (cell(kind=14, qualifier=b""),),
        (cell(kind=12), cell(kind=8)),
        (cell(kind=14, qualifier=b""), cell(b"v", 9)),
        (cell(b"v"),),
    )
    assert only_deletes(edits).tolist() == [True, True, False, False]
    assert deletes_families(edits).tolist() == [True, False, False, False]


def _installed(monkeypatch: pytest.MonkeyPatch, group: str, value: str) -> None:
    points = EntryPoints([EntryPoint("mine", f"{__name__}_functions:{value}", group)])
    monkeypatch.setattr(entry_points, "entry_points", lambda group: points.select(group=group))
    monkeypatch.setattr(EntryPoint, "load", lambda entry: globals()[entry.value.partition(":")[2]])


def odd_sequences(batch: EditBatch) -> np.ndarray:
    return batch.events["sequence_id"].to_numpy() % 2 == 1


def first_values(batch: EditBatch) -> pa.Array:
    return batch.cells["value"].take(batch.events["first_cell"])


def texts(batch: EditBatch) -> pa.Array:
    return pa.array(["text"] * batch.num_events)


def test_functions_of_users_are_loaded_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    edits = batch_of((cell(b"a"),), (cell(b"b"),))
    _installed(monkeypatch, entry_points.FILTERS, "odd_sequences")
    assert entry_points.load_filter("mine")(edits).events["sequence_id"].to_pylist() == [1]
    with pytest.raises(NotFound, match=r"no entry point other .* expected one of \['mine'\]"):
        entry_points.load_filter("other")
    _installed(monkeypatch, entry_points.PAYLOAD_EXTRACTORS, "first_values")
    assert entry_points.load_payload_extractor("mine")(edits).to_pylist() == [b"a", b"b"]
    _installed(monkeypatch, entry_points.PAYLOAD_EXTRACTORS, "texts")
    with pytest.raises(DefinitionError, match="expected 2 values of bytes or null"):
        entry_points.load_payload_extractor("mine")(edits)
    _installed(monkeypatch, entry_points.PAYLOAD_EXTRACTORS, "__name__")
    with pytest.raises(DefinitionError, match="is no function"):
        entry_points.load_payload_extractor("mine")
