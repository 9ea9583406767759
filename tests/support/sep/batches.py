"""Batches of events from short descriptions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from rtolap.sep.events.edit_batch import CELLS_SCHEMA, EVENTS_SCHEMA, CellType, EditBatch


class Cell(NamedTuple):
    qualifier: bytes = b"q"
    value: bytes = b""
    family: bytes = b"cf"
    timestamp_ms: int = 0
    type: int = CellType.PUT


class Event(NamedTuple):
    """An event of one cell, unless said otherwise."""

    region: str
    sequence_id: int
    row: bytes
    write_time_ms: int = 0
    table: str = "t"
    cells: tuple[Cell, ...] = (Cell(),)


_ONE_CELL = (Cell(),)


def batch_of(events: Iterable[Event]) -> EditBatch:
    listed = list(events)
    if all(event.cells == _ONE_CELL for event in listed):
        cells, spans = _plain_cells(len(listed))
    else:
        counts = np.array([len(event.cells) for event in listed], np.int32)
        cells, spans = _cells([cell for event in listed for cell in event.cells], counts), _spans(counts)
    columns = [
        pa.array([event.table for event in listed], pa.string()).dictionary_encode(),
        pa.array([event.region for event in listed], pa.string()).dictionary_encode(),
        pa.array([event.sequence_id for event in listed], pa.int64()),
        pa.array([event.write_time_ms for event in listed], pa.int64()),
        pa.array([event.row for event in listed], pa.binary()),
        *spans,
    ]
    return EditBatch(pa.RecordBatch.from_arrays(columns, schema=EVENTS_SCHEMA), cells)


@lru_cache(maxsize=256)
def _plain_cells(num_events: int) -> tuple[pa.RecordBatch, list[pa.Array]]:
    """Return the cells of so many events of one each, and where they are. They are made once: nobody can
    change them."""
    counts = np.ones(num_events, np.int32)
    return _cells([*_ONE_CELL] * num_events, counts), _spans(counts)


def _spans(counts: NDArray[np.int32]) -> list[pa.Array]:
    """Return columns of events that no cluster has applied before: where the cells of each begin, and how
    many they are."""
    return [
        pa.array([[] for _ in counts], pa.list_(pa.string())),
        pa.array(np.cumsum(counts, dtype=np.int32) - counts, pa.int32()),
        pa.array(counts, pa.int32()),
    ]


def _cells(cells: Sequence[Cell], counts: NDArray[np.int32]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.repeat(np.arange(len(counts), dtype=np.int32), counts), pa.int32()),
            pa.array([cell.family for cell in cells], pa.binary()).dictionary_encode(),
            pa.array([cell.qualifier for cell in cells], pa.binary()),
            pa.array([cell.timestamp_ms for cell in cells], pa.int64()),
            pa.array([cell.type for cell in cells], pa.uint8()),
            pa.array([cell.value for cell in cells], pa.binary()),
            pa.array([b"" for _ in cells], pa.binary()),
        ],
        schema=CELLS_SCHEMA,
    )


def puts(region: str, sequence_ids: Sequence[int], rows: Sequence[bytes] = (b"r",)) -> EditBatch:
    """Return edits, each of which puts one cell into each row."""
    return batch_of(Event(region, at, row) for at in sequence_ids for row in rows)


def keys_of(batch: EditBatch) -> list[tuple[str, int, bytes]]:
    """Return (region, sequence id, row) of each event"""
    events = batch.events
    columns = (events["region"].to_pylist(), events["sequence_id"].to_pylist(), events["row"].to_pylist())
    return list(zip(*columns, strict=True))
