"""Rows of equal keys become one, by the table's model. Rows are sorted, in order of arrival within a key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rtolap.base.errors import Refused, RowsRefused
from rtolap.columnar.chunks import single_chunk
from rtolap.columnar.hll_groups import merge_groups
from rtolap.columnar.reduce import extreme, sum_values
from rtolap.columnar.sketches import merge_bitmaps
from rtolap.model.stored.schema import SchemaColumn, StoredSchema
from rtolap.stored.engine.rows.columns import DELETE_SIGN, file_column
from rtolap.stored.engine.rows.keys import Longs, Order, sort, sorted_rows
from rtolap.stored.engine.rows.texts import with_dictionaries


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
        """Yield the rows piece by piece. A copy of a few rows stays in the processor's cache.

        Texts that repeat come as sorted dictionaries (`texts`).
        """
        table = with_dictionaries(self.table)
        for start in range(0, self.num_rows, rows_max):
            if self.rows is None:
                yield table.slice(start, rows_max)
            else:
                rows = pa.array(self.rows[start : start + rows_max])
                yield pc.take(table, rows, boundscheck=False)  # they are a permutation's


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
    if len(order.starts) == table.num_rows:
        return Merged(table, order.rows)
    return Merged(aggregate(table, order, schema), None)


def aggregate(table: pa.Table, order: Order, schema: StoredSchema) -> pa.Table:
    """Return a row for each key of rows in this order. Columns are those that the table has, keys among
    them."""
    assert DELETE_SIGN not in table.column_names, "an aggregate table deletes nothing"
    groups = _Groups(table.num_rows, order)
    merged = {}
    for column in schema.columns:
        name = file_column(column.id)
        if name in table.column_names:
            merged[name] = _aggregate_column(single_chunk(table.column(name)), column, groups)
    return pa.table(merged)


class _Groups:
    """The keys of rows in their order. Only functions of several values need a column in this order."""

    def __init__(self, rows: int, order: Order) -> None:
        self._rows, self.starts, self.count = order.rows, order.starts, len(order.starts)
        self.firsts = self._places(order.starts)
        self.lasts = self._places(_ends(order.starts, rows))
        self.ids = np.zeros(rows, np.int64)
        self.ids[order.starts[1:]] = 1
        self.ids = np.cumsum(self.ids)

    def _places(self, at: Longs) -> pa.Array:
        return pa.array(at if self._rows is None else self._rows[at])

    def ordered(self, values: pa.Array) -> pa.Array:
        return values if self._rows is None else values.take(pa.array(self._rows))

    def last_valid(self, values: pa.Array) -> pa.Array:
        """Return the place of each key's last value that is not null; null where there is none."""
        if not values.null_count:
            return self.lasts
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        valid = valid if self._rows is None else valid[self._rows]
        last = np.maximum.reduceat(np.where(valid, np.arange(len(values)), -1), self.starts)
        places = last if self._rows is None else self._rows[last]
        return pa.array(places, mask=last < 0)


def _aggregate_column(values: pa.Array, column: SchemaColumn, groups: _Groups) -> pa.Array:
    match column.definition.aggregate:
        case None:
            return values.take(groups.firsts)
        case "REPLACE":
            return values.take(groups.lasts)
        case "REPLACE_IF_NOT_NULL":
            return values.take(groups.last_valid(values))
        case "SUM":
            try:
                return sum_values(groups.ordered(values), groups.ids, groups.count, values.type)
            except Refused as error:
                raise RowsRefused(
                    f"column {column.name}: {error.message}", expected=error.expected
                ) from error
        case "MIN":
            return _extreme(groups.ordered(values), groups, "min")
        case "MAX":
            return _extreme(groups.ordered(values), groups, "max")
        case "HLL_UNION":
            return merge_groups(groups.ordered(values), groups.ids, groups.count)
        case "BITMAP_UNION":
            return merge_bitmaps(groups.ordered(values), groups.ids, groups.count)


def _extreme(values: pa.Array, groups: _Groups, op: Literal["min", "max"]) -> pa.Array:
    """Return the extremes of sorted groups: numbers without nulls in one step, others as they can be."""
    if pa.types.is_float64(values.type) and not values.null_count:
        doubles = values.to_numpy()
        if not np.isnan(doubles).any():  # numpy's extreme of NaN is NaN
            return pa.array((np.minimum if op == "min" else np.maximum).reduceat(doubles, groups.starts))
    return extreme(values, groups.ids, groups.count, op)


def _ends(starts: Longs, rows: int) -> Longs:
    return np.append(starts[1:], rows) - 1
