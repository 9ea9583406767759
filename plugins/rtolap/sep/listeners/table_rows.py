"""Events as rows of a stored table: which columns they fill, and which of them may go into one load.

    duplicate table   a row an event, in one load; columns that the edit did not put are null
    unique table      the key is the row key, the sequence column takes the sequence id. Events that put the
                      same columns go into one partial load, deletes of whole families into one that deletes

Loads stand in an order in which each row's events follow each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rtolap.base.errors import DefinitionError
from rtolap.protocols.stream_load.messages import TableSchema
from rtolap.sep.events.columns import deciding_cells, deletes_families
from rtolap.sep.events.edit_batch import EditBatch
from rtolap.sep.listeners.event_columns import OPERATION, PAYLOAD, TIMESTAMP, WRITE_TIME, EventColumns
from rtolap.sep.listeners.listener import Mask

SEQUENCE_ID: Final = "sequence_id"
REGION: Final = "region"
LATE: Final = "late"
_OPTIONAL: Final = (OPERATION, TIMESTAMP, WRITE_TIME, SEQUENCE_ID, REGION, LATE, PAYLOAD)
_UNIQUE: Final = "UNIQUE_KEYS"


@dataclass(frozen=True)
class TableLoad:
    """`rows` are those of the events at `places`. `partial`: the other columns stay as they are; `deletes`:
    the rows go."""

    places: NDArray[np.int64]
    rows: pa.RecordBatch
    partial: bool
    deletes: bool


class TableRows:
    """Raises DefinitionError for a table that cannot take the events."""

    def __init__(self, columns: EventColumns, schema: TableSchema) -> None:
        present = {column.name for column in schema.properties}
        missing = [name for name in columns.names if name not in present]
        if missing:
            raise DefinitionError(
                "the table of a listener lacks columns",
                expected=f"all of {', '.join(columns.names)}",
                found=f"no {', '.join(missing)}",
                action="add them to the table, or take them out of the subscription",
            )
        self._is_unique = schema.keys_type == _UNIQUE
        if self._is_unique and schema.sequence_column not in (SEQUENCE_ID, None):
            raise DefinitionError(
                "the sequence column of the table is not one that events have",
                expected=SEQUENCE_ID,
                found=schema.sequence_column,
                action="load a table whose sequence column is that",
            )
        if self._is_unique and schema.sequence_column is None:
            raise DefinitionError(
                "the unique table has no sequence column, so a late event would win over a newer one",
                expected=f"a column {SEQUENCE_ID} BIGINT that is its sequence column",
                action="create the table with it, or load a duplicate table",
            )
        self._columns = columns
        self._own = [
            name for name in _OPTIONAL if name in present and (name != PAYLOAD or columns.has_payload)
        ]

    def loads(self, batch: EditBatch, late: Mask) -> tuple[list[TableLoad], dict[int, str]]:
        """Return the loads in their order, and why there is none for the refused events."""
        events = self._columns.of(batch)
        own = {
            OPERATION: events.columns[OPERATION],
            TIMESTAMP: events.columns[TIMESTAMP],
            WRITE_TIME: events.columns[WRITE_TIME],
            SEQUENCE_ID: batch.events["sequence_id"],
            REGION: batch.events["region"].cast(pa.string()),
            LATE: pa.array(late),
        }
        if PAYLOAD in self._own:
            own[PAYLOAD] = _loadable(events.columns[PAYLOAD])
        row_name = self._columns.row_name
        rows = {name: _loadable(events.columns[name]) for name in self._columns.names}
        rows |= {name: own[name] for name in self._own}
        whole = pa.RecordBatch.from_pydict(rows)
        taken = np.ones(batch.num_events, bool)
        taken[list(events.refused)] = False
        if not self._is_unique:
            places = np.flatnonzero(taken)
            load = TableLoad(places, whole.take(pa.array(places)), partial=False, deletes=False)
            return ([load] if len(places) else []), events.refused
        loads: list[TableLoad] = []
        kinds, touched = self._kinds(batch)
        for places in _in_order(batch, kinds, taken):
            kind = int(kinds[places[0]])
            deletes = kind < 0
            names = [row_name, *(() if deletes else touched[kind]), *self._own]
            load = whole.take(pa.array(places)).select(names)
            partial = not deletes and len(touched[kind]) < len(self._columns.sources)
            loads.append(TableLoad(places, load, partial=partial, deletes=deletes))
        return loads, events.refused

    def _kinds(self, batch: EditBatch) -> tuple[NDArray[np.int64], list[tuple[str, ...]]]:
        """(what each event does: -1 deletes its row, else a place in the list; lists of touched columns)"""
        names = list(self._columns.sources)
        marks = np.zeros((batch.num_events, len(names)), bool)
        for at, source in enumerate(self._columns.sources.values()):
            marks[:, at] = deciding_cells(batch, source.family, source.qualifier) >= 0
        patterns, kinds = np.unique(marks, axis=0, return_inverse=True)
        touched = [
            tuple(name for name, mark in zip(names, pattern, strict=True) if mark) for pattern in patterns
        ]
        kinds = kinds.reshape(-1).astype(np.int64)
        kinds[deletes_families(batch)] = -1
        return kinds, touched


def _in_order(batch: EditBatch, kinds: NDArray[np.int64], taken: Mask) -> list[NDArray[np.int64]]:
    """Places by load: an event goes behind the load that holds the one before it of its row, or into it."""
    chosen = np.flatnonzero(taken)
    if not len(chosen):
        return []
    if (kinds[chosen] == kinds[chosen[0]]).all():
        return [chosen]
    rows: Sequence[bytes] = batch.events["row"].to_pylist()
    last: dict[bytes, tuple[int, int]] = {}  # row → level and kind of its last event
    levels = np.zeros(batch.num_events, np.int64)
    for place in chosen.tolist():
        level, kind = last.get(rows[place], (0, int(kinds[place])))
        level += kind != kinds[place]
        levels[place] = level
        last[rows[place]] = (level, int(kinds[place]))
    loads = []
    for level, kind in sorted(set(zip(levels[chosen].tolist(), kinds[chosen].tolist(), strict=True))):
        loads.append(chosen[(levels[chosen] == level) & (kinds[chosen] == kind)])
    return loads


def _loadable(column: pa.Array) -> pa.Array:
    """Bytes become hexadecimal text, as in records of a topic."""
    if not pa.types.is_binary(column.type):
        return column
    return pa.array([None if value is None else value.hex() for value in column.to_pylist()], pa.string())
