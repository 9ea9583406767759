"""Batches of events from short descriptions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
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


def batch_of(events: Iterable[Event]) -> EditBatch:
    listed = list(events)
    counts = np.array([len(event.cells) for event in listed], np.int32)
    cells = [cell for event in listed for cell in event.cells]
    columns = [
        pa.array([event.table for event in listed], pa.string()).dictionary_encode(),
        pa.array([event.region for event in listed], pa.string()).dictionary_encode(),
        pa.array([event.sequence_id for event in listed], pa.int64()),
        pa.array([event.write_time_ms for event in listed], pa.int64()),
        pa.array([event.row for event in listed], pa.binary()),
        pa.array([[] for _ in listed], pa.list_(pa.string())),
        pa.array(np.cumsum(counts, dtype=np.int32) - counts, pa.int32()),
        pa.array(counts, pa.int32()),
    ]
    return EditBatch(
        pa.RecordBatch.from_arrays(columns, schema=EVENTS_SCHEMA),
        pa.RecordBatch.from_arrays(
            [
                pa.array(np.repeat(np.arange(len(listed), dtype=np.int32), counts), pa.int32()),
                pa.array([cell.family for cell in cells], pa.binary()).dictionary_encode(),
                pa.array([cell.qualifier for cell in cells], pa.binary()),
                pa.array([cell.timestamp_ms for cell in cells], pa.int64()),
                pa.array([cell.type for cell in cells], pa.uint8()),
                pa.array([cell.value for cell in cells], pa.binary()),
                pa.array([b"" for _ in cells], pa.binary()),
            ],
            schema=CELLS_SCHEMA,
        ),
    )


def puts(region: str, sequence_ids: Sequence[int], rows: Sequence[bytes] = (b"r",)) -> EditBatch:
    """Each edit puts one cell into each row."""
    return batch_of(Event(region, at, row) for at in sequence_ids for row in rows)


def keys_of(batch: EditBatch) -> list[tuple[str, int, bytes]]:
    """(region, sequence id, row) of each event"""
    events = batch.events
    columns = (events["region"].to_pylist(), events["sequence_id"].to_pylist(), events["row"].to_pylist())
    return list(zip(*columns, strict=True))
