"""Events as rows of a stored table.

    duplicate table   a row an event, in one load; columns that the edit did not put are null
    unique table      the key is the row key. Rows that the events have changed are read again from HBase, and
                      are loaded as they are now: what is there in one load, what is gone in one that deletes.
                      A sequence column takes a number that grows from load to load

docs/decisions/0039-mirrored-rows.md says why rows are read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rtolap.base.errors import DefinitionError
from rtolap.protocols.stream_load.messages import TableSchema
from rtolap.sep.delivery.edit_records import I64
from rtolap.sep.delivery.listener import Mask
from rtolap.sep.events.edit_batch import EditBatch
from rtolap.sep.listeners.event_columns import OPERATION, PAYLOAD, TIMESTAMP, WRITE_TIME, EventColumns
from rtolap.sep.rows.reader import ReadRows, RowSource

SEQUENCE_ID: Final = "sequence_id"
REGION: Final = "region"
LATE: Final = "late"
_OPTIONAL: Final = (OPERATION, TIMESTAMP, WRITE_TIME, SEQUENCE_ID, REGION, LATE, PAYLOAD)
_UNIQUE: Final = "UNIQUE_KEYS"


@dataclass(frozen=True)
class TableLoad:
    """Rows that may go into one load, in any order.

    Attributes:
        places: the events behind the rows.
        row_of: the row of each of these events.
        rows: none where all that the events ask for is done.
        partial: other columns of the table stay as they are.
        deletes: the rows go.
        number_column: the column that takes the load's number, None where there is none.
    """

    places: I64
    row_of: I64
    rows: pa.RecordBatch
    partial: bool = False
    deletes: bool = False
    number_column: str | None = None

    def take(self, rows: I64) -> TableLoad:
        """Return the load of some of its rows, which ascend."""
        chosen = np.isin(self.row_of, rows)
        row_of = np.searchsorted(rows, self.row_of[chosen])
        taken = self.rows.take(pa.array(rows))
        return TableLoad(self.places[chosen], row_of, taken, self.partial, self.deletes, self.number_column)


@dataclass(frozen=True)
class PreparedRows:
    """Rows for a table.

    Attributes:
        refused: the events that yield no row, by place, with the reasons.
    """

    loads: list[TableLoad]
    refused: dict[int, str] = field(default_factory=dict)


class TableRows:
    """Rows of a stored table, made of events. Raises DefinitionError for a table that cannot take the events.

    Args:
        source: where the rows of a unique table are read.
        deletes: False keeps rows that HBase has deleted.
    """

    def __init__(
        self,
        columns: EventColumns,
        schema: TableSchema,
        source: RowSource | None = None,
        *,
        deletes: bool = True,
    ) -> None:
        present = {column.name for column in schema.properties}
        missing = [name for name in columns.names if name not in present]
        if missing:
            raise DefinitionError(
                "the table of a listener lacks columns",
                expected=f"all of {', '.join(columns.names)}",
                found=f"no {', '.join(missing)}",
                action="add them to the table, or take them out of the subscription",
            )
        self.is_unique = schema.keys_type == _UNIQUE
        if self.is_unique and schema.sequence_column not in (SEQUENCE_ID, None):
            raise DefinitionError(
                "the sequence column of the table is not one that events have",
                expected=f"{SEQUENCE_ID}, or none",
                found=schema.sequence_column,
                action="load a table whose sequence column is that",
            )
        self._columns = columns
        self._source = source
        self._deletes = deletes
        self._number_column = schema.sequence_column if self.is_unique else None
        self._own = [
            name
            for name in _OPTIONAL
            if name in present
            and name not in (self._number_column, *columns.names)
            and (name != PAYLOAD or columns.has_payload)
        ]
        written = {*columns.names, *self._own, self._number_column}
        self._is_partial = not present <= written

    def close(self) -> None:
        if self._source is not None:
            self._source.close()

    def prepared(self, batch: EditBatch, late: Mask) -> Iterator[PreparedRows]:
        """Return the rows in parts: each is to be loaded before the next is taken, for it is read then.

        Unavailable: rows cannot be read now.
        """
        return self._read_again(batch, late) if self.is_unique else iter([self._each_event(batch, late)])

    def _each_event(self, batch: EditBatch, late: Mask) -> PreparedRows:
        events = self._columns.of(batch)
        columns = {name: _loadable(events.columns[name]) for name in self._columns.names}
        columns |= self._own_columns(batch, late, events.columns)
        taken = np.ones(batch.num_events, bool)
        taken[list(events.refused)] = False
        places = np.flatnonzero(taken)
        rows = pa.RecordBatch.from_pydict(columns).take(pa.array(places))
        loads = [TableLoad(places, np.arange(len(places)), rows)] if len(places) else []
        return PreparedRows(loads, events.refused)

    def _read_again(self, batch: EditBatch, late: Mask) -> Iterator[PreparedRows]:
        assert self._source is not None, "a unique table has a source of rows"
        ids = batch.events["sequence_id"].to_numpy()
        tables, regions = batch.events["table"], batch.events["region"]
        table_codes = tables.indices.to_numpy()
        for code in np.unique(table_codes).tolist():
            of_table = np.flatnonzero(table_codes == code)
            at_least = _highest(regions.indices.to_numpy()[of_table], ids[of_table])
            names = regions.dictionary.to_pylist()
            keys = batch.events["row"].take(pa.array(of_table)).dictionary_encode()
            row_of = keys.indices.to_numpy().astype(np.int64)
            last = np.zeros(len(keys.dictionary), np.int64)
            last[row_of] = of_table  # the last event of a row stays
            for read in self._source.read(
                str(tables.dictionary[code].as_py()),
                keys.dictionary.to_pylist(),
                {names[region]: sequence_id for region, sequence_id in at_least.items()},
            ):
                yield self._prepared(batch, late, of_table, row_of, last, read)

    def _prepared(
        self, batch: EditBatch, late: Mask, of_table: I64, row_of: I64, last: I64, read: ReadRows
    ) -> PreparedRows:
        """Return prepared rows. `of_table` has the places of the table's events, `row_of` the row of each,
        `last` the last event of a row."""
        place_in_read = np.full(len(last), -1, np.int64)
        place_in_read[read.places] = np.arange(len(read.places))
        within = place_in_read[row_of]
        events, event_rows = of_table[within >= 0], within[within >= 0]
        newest = last[read.places]
        changed = batch.take(newest)
        rows = EditBatch(_with_cells(changed.events, read.counts), read.cells)
        decoded = self._columns.of_rows(rows)
        columns = {name: _loadable(decoded.columns[name]) for name in self._columns.names}
        if self._own:
            columns |= self._own_columns(changed, late[newest], self._columns.of(changed).columns)
        whole = pa.RecordBatch.from_pydict(columns)
        refused_rows = np.zeros(len(newest), bool)
        refused_rows[list(decoded.refused)] = True
        loads = []
        for mask, deletes in ((read.exists, False), (~read.exists, True)):
            chosen = np.flatnonzero(mask & ~refused_rows)
            if not len(chosen):
                continue
            load = TableLoad(
                events,
                event_rows,
                whole if not deletes else whole.select([self._columns.row_name, *self._own]),
                partial=self._is_partial and not deletes,
                deletes=deletes,
                number_column=self._number_column,
            ).take(chosen)
            if deletes and not self._deletes:
                load = TableLoad(load.places, load.row_of, load.rows.slice(0, 0))
            loads.append(load)
        refused = {
            place: decoded.refused[row]
            for place, row in zip(events.tolist(), event_rows.tolist(), strict=True)
            if row in decoded.refused
        }
        return PreparedRows(loads, refused)

    def _own_columns(self, batch: EditBatch, late: Mask, events: dict[str, pa.Array]) -> dict[str, pa.Array]:
        own = {
            OPERATION: events[OPERATION],
            TIMESTAMP: events[TIMESTAMP],
            WRITE_TIME: events[WRITE_TIME],
            SEQUENCE_ID: batch.events["sequence_id"],
            REGION: batch.events["region"].cast(pa.string()),
            LATE: pa.array(late),
        }
        if PAYLOAD in self._own:
            own[PAYLOAD] = _loadable(events[PAYLOAD])
        return {name: own[name] for name in self._own}


def _highest(codes: NDArray[np.integer], ids: I64) -> dict[int, int]:
    """Return the largest id of each code."""
    highest = np.full(int(codes.max()) + 1, -1, np.int64)
    np.maximum.at(highest, codes, ids)
    return {code: int(highest[code]) for code in np.flatnonzero(highest >= 0).tolist()}


def _with_cells(events: pa.RecordBatch, counts: I64) -> pa.RecordBatch:
    """Return the events with so many cells each, one behind the other."""
    for name, values in (("first_cell", np.cumsum(counts) - counts), ("cell_count", counts)):
        at = events.schema.get_field_index(name)
        events = events.set_column(at, events.schema.field(at), pa.array(values.astype(np.int32)))
    return events


def _loadable(column: pa.Array) -> pa.Array:
    """Return a column that can be loaded. Bytes become hexadecimal text, as in records of a topic."""
    if not pa.types.is_binary(column.type):
        return column
    return pa.array([None if value is None else value.hex() for value in column.to_pylist()], pa.string())
