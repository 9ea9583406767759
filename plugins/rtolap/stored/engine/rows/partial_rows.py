"""Rows that name only some columns, of a unique table: within one load, and over the rows that were before.

One after the other, as they came: a row of a key that is there takes over what it does not name, one of a key
that is not there, or deleted, has defaults. With the sequence column among those named, a row with a smaller
one than its key has changes nothing; without it the key keeps its sequence.

What is left of a key in a file is one row: the last that counts. Where an earlier one of the same load
deleted the key, nothing older is taken over (`CLEARED`), unless that has a larger sequence than the deleting
row had (`CLEARED_AT`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.columnar.chunks import single_chunk
from rtolap.model.stored.schema import SchemaColumn, StoredSchema
from rtolap.stored.engine.rows.columns import DELETE_SIGN, constant, file_column, stored_type
from rtolap.stored.engine.rows.keys import Longs, sort

CLEARED, CLEARED_AT = "__cleared", "__cleared_at"
Mask = NDArray[np.bool_]


class Former(NamedTuple):
    """Rows that were before: `table` in file columns, and for each partial row its place there, or -1."""

    table: pa.Table
    at: Longs


def merge_partial(table: pa.Table, schema: StoredSchema) -> pa.Table:
    """Merge file columns in order of arrival into rows sorted by key, one for each key."""
    if table.num_rows == 0:
        return table
    order = sort([single_chunk(table.column(file_column(column.id))) for column in schema.key_columns])
    places = np.arange(table.num_rows)
    rows = places if order.rows is None else order.rows
    counts = _counts(table, schema, rows, order.starts)
    last = np.maximum.reduceat(np.where(counts, places, -1), order.starts)
    merged = table.take(pa.array(rows[last]))
    if DELETE_SIGN not in table.column_names:
        return merged
    deletes = counts & _flags(table, DELETE_SIGN)[rows]
    last_delete = np.maximum.reduceat(np.where(deletes, places, -1), order.starts)
    cleared = (last_delete >= 0) & (last_delete < last)
    if not cleared.any():
        return merged
    merged = merged.append_column(CLEARED, pa.array(cleared))
    sequence = _sequence(table, schema)
    if sequence is not None:
        merged = merged.append_column(CLEARED_AT, sequence.take(pa.array(rows[last_delete], mask=~cleared)))
    return merged


def completed(partial: pa.Table, former: Former, schema: StoredSchema) -> pa.Table:
    """Return complete rows in file columns: those of `schema`, and the delete signs if there are any.

    Rows that a larger sequence keeps from counting are among them: they are deleted as complete rows are.
    """
    has_former = former.at >= 0
    taken_over = has_former & ~_among(former, _flags(former.table, DELETE_SIGN), partial.num_rows)
    taken_over &= ~_cleared(partial, former, schema)
    columns: dict[str, pa.ChunkedArray | pa.Array] = {}
    for column in schema.columns:
        name = file_column(column.id)
        if name in partial.column_names:
            columns[name] = partial.column(name)
        else:
            columns[name] = _filled(
                column, former, has_former if column.id == schema.sequence else taken_over
            )
    if DELETE_SIGN in partial.column_names:
        columns[DELETE_SIGN] = partial.column(DELETE_SIGN)
    return pa.table(columns)


def _filled(column: SchemaColumn, former: Former, taken_over: Mask) -> pa.Array:
    """Fill from the former rows, else by the default."""
    known = single_chunk(former.table.column(file_column(column.id)))
    both = pa.concat_arrays([known, constant(column, 1)])
    return both.take(pa.array(np.where(taken_over, former.at, len(known))))


def _cleared(partial: pa.Table, former: Former, schema: StoredSchema) -> Mask:
    """Return the rows that an earlier row of the load has deleted."""
    cleared = _flags(partial, CLEARED)
    if CLEARED_AT not in partial.column_names or not cleared.any():
        return cleared
    assert schema.sequence is not None
    rows = np.flatnonzero(cleared & (former.at >= 0))
    old = single_chunk(former.table.column(file_column(schema.sequence))).take(pa.array(former.at[rows]))
    deleted_at = single_chunk(partial.column(CLEARED_AT)).take(pa.array(rows))
    larger = pc.or_(
        pc.fill_null(pc.greater(old, deleted_at), False), pc.and_(old.is_valid(), deleted_at.is_null())
    )
    cleared[rows] = ~np.asarray(larger.to_numpy(zero_copy_only=False))
    return cleared


def _counts(table: pa.Table, schema: StoredSchema, rows: Longs, starts: Longs) -> Mask:
    """Return a mask of the sorted rows that no earlier row of their key exceeds in sequence."""
    sequence = _sequence(table, schema)
    if sequence is None:
        return np.ones(len(rows), np.bool_)
    by_sequence = sort([sequence])
    ranks = np.zeros(len(rows), np.int64)
    order = np.arange(len(rows)) if by_sequence.rows is None else by_sequence.rows
    ranks[order] = _groups(by_sequence.starts, len(rows))
    levels = _groups(starts, len(rows)) * len(rows) + ranks[rows]
    is_counted: Mask = levels >= np.maximum.accumulate(levels)
    return is_counted


def _groups(starts: Longs, rows: int) -> Longs:
    """Return the number of its group, for each row."""
    changed = np.zeros(rows, np.int64)
    changed[starts[1:]] = 1
    return np.cumsum(changed)


def _sequence(table: pa.Table, schema: StoredSchema) -> pa.Array | None:
    if schema.sequence is None or file_column(schema.sequence) not in table.column_names:
        return None
    return single_chunk(table.column(file_column(schema.sequence)))


def _flags(table: pa.Table, name: str) -> Mask:
    if name not in table.column_names:
        return np.zeros(table.num_rows, np.bool_)
    return np.array(single_chunk(table.column(name)).to_numpy(zero_copy_only=False))


def _among(former: Former, flags: Mask, rows: int) -> Mask:
    """Return the former rows' flags, for each partial row; false where there is none."""
    is_among = np.zeros(rows, np.bool_)
    has_former = former.at >= 0
    is_among[has_former] = flags[former.at[has_former]]
    return is_among


def whole_columns(schema: StoredSchema, *, signed: bool) -> pa.Schema:
    """Return the schema of a file of completed rows."""
    fields = [pa.field(file_column(column.id), stored_type(column)) for column in schema.columns]
    return pa.schema(fields + [pa.field(DELETE_SIGN, pa.bool_())] * signed)
