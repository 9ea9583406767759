"""Events of one or more calls as two Arrow record batches: an event a row and edit, and the cells of all.

Events of one call stand in the order of its entries; the rows of an entry in the order in which its cells
first name them. The cells of an event are adjacent and in the order of the WAL edit, also where cells of
other rows stood between them there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rtolap.base.errors import TooLarge

_NAME: Final = pa.dictionary(pa.int32(), pa.string())

EVENTS_SCHEMA: Final = pa.schema(
    [
        pa.field("table", _NAME, nullable=False),  # `namespace:table`, or `table` in the default namespace
        pa.field("region", _NAME, nullable=False),  # encoded region name
        pa.field("sequence_id", pa.int64(), nullable=False),  # grows in a region, from edit to edit
        pa.field("write_time_ms", pa.int64(), nullable=False),
        pa.field("row", pa.binary(), nullable=False),
        pa.field("cluster_ids", pa.list_(pa.string()), nullable=False),  # clusters that applied the edit
        pa.field("first_cell", pa.int32(), nullable=False),  # position in the cells
        pa.field("cell_count", pa.int32(), nullable=False),
    ]
)
# Of events that are delivered: older than what was delivered of their row's region before.
LATE_FIELD: Final = pa.field("late", pa.bool_(), nullable=False)
CELLS_SCHEMA: Final = pa.schema(
    [
        pa.field("event", pa.int32(), nullable=False),  # position in the events
        pa.field("family", pa.dictionary(pa.int32(), pa.binary()), nullable=False),
        pa.field("qualifier", pa.binary(), nullable=False),
        pa.field("timestamp_ms", pa.int64(), nullable=False),
        pa.field("type", pa.uint8(), nullable=False),  # a CellType
        pa.field("value", pa.binary(), nullable=False),
        pa.field("tags", pa.binary(), nullable=False),  # as they travelled; empty where there are none
    ]
)


class CellType(IntEnum):
    """The kinds of cells that reach a peer; increments and appends arrive as PUT with their result."""

    PUT = 4
    DELETE = 8  # one version of a column
    DELETE_FAMILY_VERSION = 10
    DELETE_COLUMN = 12  # all versions of a column up to the timestamp
    DELETE_FAMILY = 14


@dataclass(frozen=True, slots=True)
class EditBatch:
    """Events and their cells. `first_cell` and `event` refer to each other.

    Attributes:
        events: by EVENTS_SCHEMA; a Python listener gets LATE_FIELD behind it.
        cells: by CELLS_SCHEMA.
    """

    events: pa.RecordBatch
    cells: pa.RecordBatch

    @property
    def num_events(self) -> int:
        return int(self.events.num_rows)

    @property
    def num_cells(self) -> int:
        return int(self.cells.num_rows)

    @property
    def size_bytes(self) -> int:
        """The memory behind the columns; buffers that batches share count in each."""
        return int(self.events.get_total_buffer_size() + self.cells.get_total_buffer_size())

    def with_late(self, late: NDArray[np.bool_]) -> EditBatch:
        """Return the events with their flags as a column."""
        return EditBatch(self.events.append_column(LATE_FIELD, pa.array(late)), self.cells)

    def take(self, indices: NDArray[np.integer]) -> EditBatch:
        """Return the events at these positions, in this order, with their cells."""
        chosen = np.asarray(indices, np.int64)
        first = self.events["first_cell"].to_numpy()[chosen].astype(np.int64)
        count = self.events["cell_count"].to_numpy()[chosen].astype(np.int64)
        ends = np.cumsum(count)
        starts = ends - count
        total = int(ends[-1]) if len(ends) else 0
        cell_places = np.arange(total) + np.repeat(first - starts, count)
        return EditBatch(
            _replaced(self.events.take(pa.array(chosen)), "first_cell", starts),
            _replaced(
                self.cells.take(pa.array(cell_places)), "event", np.repeat(np.arange(len(chosen)), count)
            ),
        )

    def slice(self, first: int, count: int) -> EditBatch:
        """Return neighbouring events with their cells, without copying any of what they hold."""
        events = self.events.slice(first, count)
        if not events.num_rows:
            return EditBatch(events, self.cells.slice(0, 0))
        first_cells = events["first_cell"].to_numpy()
        start = int(first_cells[0])
        end = int(first_cells[-1]) + events["cell_count"][-1].as_py()
        cells = self.cells.slice(start, end - start)
        return EditBatch(
            _replaced(events, "first_cell", first_cells - start),
            _replaced(cells, "event", cells["event"].to_numpy() - first),
        )

    def filter(self, mask: NDArray[np.bool_]) -> EditBatch:
        """Return the events where `mask` holds, with their cells; this batch itself if it holds for all."""
        if len(mask) != self.num_events:
            raise ValueError(f"expected a mask of {self.num_events} events, found one of {len(mask)}")
        return self if bool(np.all(mask)) else self.take(np.flatnonzero(mask))

    def filter_cells(self, mask: NDArray[np.bool_]) -> EditBatch:
        """Return the cells where `mask` holds, and the events that have any left; itself if all hold."""
        if len(mask) != self.num_cells:
            raise ValueError(f"expected a mask of {self.num_cells} cells, found one of {len(mask)}")
        if bool(np.all(mask)):
            return self
        chosen = np.flatnonzero(mask)
        owners = self.cells["event"].to_numpy()[chosen]
        count = np.bincount(owners, minlength=self.num_events)
        left = np.flatnonzero(count)
        renumbered = np.cumsum(count > 0) - 1
        events = _replaced(self.events.take(pa.array(left)), "cell_count", count[left])
        return EditBatch(
            _replaced(events, "first_cell", np.cumsum(count[left]) - count[left]),
            _replaced(self.cells.take(pa.array(chosen)), "event", renumbered[owners]),
        )


def empty_batch() -> EditBatch:
    return EditBatch(
        pa.RecordBatch.from_pylist([], schema=EVENTS_SCHEMA),
        pa.RecordBatch.from_pylist([], schema=CELLS_SCHEMA),
    )


def concat(batches: Sequence[EditBatch]) -> EditBatch:
    """Return all events of all batches, in their order.

    TooLarge: a column would hold more bytes than one record batch addresses (2 GiB).
    """
    if not batches:
        return empty_batch()
    if len(batches) == 1:
        return batches[0]
    event_offsets = _starts([batch.num_events for batch in batches])
    cell_offsets = _starts([batch.num_cells for batch in batches])
    events = [
        _replaced(batch.events, "first_cell", batch.events["first_cell"].to_numpy() + offset)
        for batch, offset in zip(batches, cell_offsets, strict=True)
    ]
    cells = [
        _replaced(batch.cells, "event", batch.cells["event"].to_numpy() + offset)
        for batch, offset in zip(batches, event_offsets, strict=True)
    ]
    return EditBatch(_joined(events), _joined(cells))


def _starts(counts: Sequence[int]) -> list[int]:
    return [0, *np.cumsum(counts).tolist()[:-1]]


def _replaced(batch: pa.RecordBatch, name: str, values: NDArray[np.integer]) -> pa.RecordBatch:
    index = batch.schema.get_field_index(name)
    return batch.set_column(index, batch.schema.field(index), pa.array(values.astype(np.int32)))


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    joined = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks().to_batches()
    if len(joined) > 1:
        raise TooLarge(
            "the events do not fit into one batch",
            expected="less than 2 GiB in each column",
            found=f"{sum(batch.get_total_buffer_size() for batch in batches)} bytes in all",
            action="join fewer calls",
        )
    return joined[0] if joined else batches[0]
