"""Events as columns of a declared schema: what a listener writes of each.

the row key        by its declared name and type
declared columns   the value that the edit put; null where it put none
operation          put · delete (of whole families, as of a row) · delete_cells (of columns or versions)
timestamp_ms       the newest timestamp among its cells
write_time_ms      when the region server wrote the edit
deleted            the declared columns that it deleted; null where it deleted none
payload            bytes by the subscription's payload extractor, where it has one
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rtolap.sep.events.columns import column_values, deciding_cells, deletes_families, only_deletes
from rtolap.sep.events.edit_batch import CellType, EditBatch
from rtolap.sep.events.values import decode_values

OPERATION: Final = "operation"
TIMESTAMP: Final = "timestamp_ms"
WRITE_TIME: Final = "write_time_ms"
DELETED: Final = "deleted"
PAYLOAD: Final = "payload"
_OPERATIONS: Final = pa.array(["put", "delete", "delete_cells"])


class ColumnSource(NamedTuple):
    """The cell of a column, and the encoding of its values."""

    family: bytes
    qualifier: bytes
    type: str


@dataclass(frozen=True)
class ColumnarEvents:
    """Events as columns.

    Attributes:
        refused: the events with a value that is not of its declared type, by place, with the reasons.
    """

    columns: dict[str, pa.Array]
    refused: dict[int, str]


class EventColumns:
    """The columns of events.

    Args:
        columns: the declared sources, by column name.
        row: name and type of the column of the row key.
        payload: the extractor of the payload; None for no payload.
    """

    def __init__(
        self,
        columns: Mapping[str, ColumnSource],
        row: tuple[str, str],
        payload: Callable[[EditBatch], pa.BinaryArray] | None = None,
    ) -> None:
        self._payload = payload
        self.sources = dict(columns)
        self.row_name, self._row_type = row

    @property
    def has_payload(self) -> bool:
        return self._payload is not None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the column of the row key, then the others."""
        return (self.row_name, *self.sources)

    @property
    def json_columns(self) -> tuple[str, ...]:
        """Return the columns whose text is JSON."""
        types = {self.row_name: self._row_type} | {name: source.type for name, source in self.sources.items()}
        return tuple(name for name, value_type in types.items() if value_type == "json")

    def keys_of(self, batch: EditBatch) -> ColumnarEvents:
        """Return the column of the row key alone."""
        refused: dict[int, str] = {}
        column = _decoded(self.row_name, self._row_type, batch.events["row"], refused)
        return ColumnarEvents({self.row_name: column}, refused)

    def of_rows(self, batch: EditBatch) -> ColumnarEvents:
        """Return the columns of rows that were read: the cells of an event are those of its row."""
        keys = self.keys_of(batch)
        columns, refused = keys.columns, keys.refused
        for name, source in self.sources.items():
            values = column_values(batch, source.family, source.qualifier)
            columns[name] = _decoded(name, source.type, values, refused)
        return keys

    def of(self, batch: EditBatch) -> ColumnarEvents:
        keys = self.keys_of(batch)
        columns, refused = keys.columns, keys.refused
        kinds = batch.cells["type"].to_numpy()
        deleted: list[tuple[str, NDArray[np.bool_]]] = []
        with_deletes = bool((kinds != CellType.PUT).any())
        for name, source in self.sources.items():
            decided = deciding_cells(batch, source.family, source.qualifier)
            is_put = decided >= 0
            is_put[is_put] = kinds[decided[is_put]] == CellType.PUT
            values = batch.cells["value"].take(pa.array(decided, mask=~is_put))
            columns[name] = _decoded(name, source.type, values, refused)
            if with_deletes:
                deleted.append((name, (decided >= 0) & ~is_put))
        columns[OPERATION] = _OPERATIONS.take(pa.array(_operations(batch, with_deletes)))
        first = batch.events["first_cell"].to_numpy()
        newest = np.maximum.reduceat(batch.cells["timestamp_ms"].to_numpy(), first) if len(first) else first
        columns[TIMESTAMP] = pa.array(newest, pa.int64())
        columns[WRITE_TIME] = batch.events["write_time_ms"]
        if deleted:
            columns[DELETED] = _names_where(deleted)
        if self._payload is not None:
            columns[PAYLOAD] = self._payload(batch)
        return ColumnarEvents(columns, refused)


def _operations(batch: EditBatch, with_deletes: bool) -> NDArray[np.int8]:
    """Return places in _OPERATIONS."""
    operations = np.zeros(batch.num_events, np.int8)
    if with_deletes:
        operations[only_deletes(batch)] = 2
        operations[deletes_families(batch)] = 1
    return operations


def _decoded(name: str, value_type: str, values: pa.BinaryArray, refused: dict[int, str]) -> pa.Array:
    decoded = decode_values(values, value_type)
    if decoded.refused.any():
        for place in np.flatnonzero(decoded.refused).tolist():
            size = len(values[place].as_py())
            refused.setdefault(
                place, f"column {name}: expected {decoded.expected} for {value_type}; found {size} bytes"
            )
    return decoded.column


def _names_where(columns: list[tuple[str, NDArray[np.bool_]]]) -> pa.ListArray:
    """Return, for each event, the names of the columns whose mask holds; null where there is none."""
    marks = np.stack([mask for _, mask in columns], axis=1)
    counts = marks.sum(axis=1)
    names = pa.array([name for name, _ in columns]).take(pa.array(np.nonzero(marks)[1]))
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), names, mask=pa.array(counts == 0))
