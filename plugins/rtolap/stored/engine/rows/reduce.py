"""Rows of equal keys become one, by the table's model. Rows are sorted, in order of arrival within a key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rtolap.base.errors import Refused, RowsRefused
from rtolap.columnar.chunks import single_chunk
from rtolap.columnar.hll_groups import merge_groups
from rtolap.columnar.reduce import extreme, sum_values
from rtolap.columnar.sketches import merge_bitmaps
from rtolap.model.stored.schema import SchemaColumn, StoredSchema
from rtolap.stored.engine.rows.columns import DELETE_SIGN, file_column
from rtolap.stored.engine.rows.keys import Longs, sort, sorted_rows


class Merged(NamedTuple):
    """Rows sorted by key, merged by the model, that may not be copied in this order yet.

    Attributes:
        table: the rows in file columns.
        rows: the places in `table` that make up the result, in order; None where it is the table as it is.
    """

    table: pa.Table
    rows: Longs | None

    @property
    def num_rows(self) -> int:
        return self.table.num_rows if self.rows is None else len(self.rows)

    def whole(self) -> pa.Table:
        return self.table if self.rows is None else self.table.take(pa.array(self.rows))

    def pieces(self, rows_max: int) -> Iterator[pa.Table]:
        """Yield the rows piece by piece. A copy of a few rows stays in the processor's cache."""
        for start in range(0, self.num_rows, rows_max):
            if self.rows is None:
                yield self.table.slice(start, rows_max)
            else:
                yield self.table.take(pa.array(self.rows[start : start + rows_max]))


def merge(table: pa.Table, schema: StoredSchema) -> pa.Table:
    """Merge file columns in order of arrival into rows sorted by key; aggregate and unique tables get one row
    for each key.

    Raises RowsRefused when a sum needs more than its type holds.
    """
    return merged(table, schema).whole()


def merged(table: pa.Table, schema: StoredSchema) -> Merged:
    """Do as `merge`, without the copy in the order of keys where that can come later."""
    keys = [single_chunk(table.column(file_column(column.id))) for column in schema.key_columns]
    if not keys or table.num_rows == 0:
        return Merged(table, None)
    if schema.model == "duplicate":
        return Merged(table, sorted_rows(keys))
    ties = []
    if schema.model == "unique" and schema.sequence is not None:
        ties = [single_chunk(table.column(file_column(schema.sequence)))]
    order = sort(keys, ties)
    if schema.model == "unique":
        last = _ends(order.starts, table.num_rows)
        return Merged(table, last if order.rows is None else order.rows[last])
    ordered = table if order.rows is None else table.take(pa.array(order.rows))
    return Merged(aggregate(ordered, order.starts, schema), None)


def aggregate(table: pa.Table, starts: Longs, schema: StoredSchema) -> pa.Table:
    """Return sorted rows, and where each key's begin. Columns that the table has; keys among them."""
    if len(starts) == table.num_rows:
        return table
    ids = np.zeros(table.num_rows, np.int64)
    ids[starts[1:]] = 1
    ids = np.cumsum(ids)
    merged = {}
    for column in schema.columns:
        name = file_column(column.id)
        if name in table.column_names:
            merged[name] = _aggregate_column(single_chunk(table.column(name)), column, ids, starts)
    assert DELETE_SIGN not in table.column_names, "an aggregate table deletes nothing"
    return pa.table(merged)


def _aggregate_column(values: pa.Array, column: SchemaColumn, ids: Longs, starts: Longs) -> pa.Array:
    groups, rows = len(starts), len(values)
    match column.definition.aggregate:
        case None:
            return values.take(pa.array(starts))
        case "REPLACE":
            return values.take(pa.array(_ends(starts, rows)))
        case "REPLACE_IF_NOT_NULL":
            return values.take(_last_valid(values, starts))
        case "SUM":
            try:
                return sum_values(values, ids, groups, values.type)
            except Refused as error:
                raise RowsRefused(
                    f"column {column.name}: {error.message}", expected=error.expected
                ) from error
        case "MIN":
            return extreme(values, ids, groups, "min")
        case "MAX":
            return extreme(values, ids, groups, "max")
        case "HLL_UNION":
            return merge_groups(values, ids, groups)
        case "BITMAP_UNION":
            return merge_bitmaps(values, ids, groups)


def _ends(starts: Longs, rows: int) -> NDArray[np.int64]:
    return np.append(starts[1:], rows) - 1


def _last_valid(values: pa.Array, starts: Longs) -> pa.Array:
    """Return row of each key's last value that is not null; null where there is none."""
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    last = np.maximum.reduceat(np.where(valid, np.arange(len(values)), -1), starts)
    return pa.array(last, mask=last < 0)
