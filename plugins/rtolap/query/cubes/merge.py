"""Partial rows of several sources → one table. Merging is associative, so leaving rows apart is exact too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rtolap.aggregates.accumulator import Partial
from rtolap.columnar.chunks import single_chunk
from rtolap.columnar.grouped import GroupedArray
from rtolap.columnar.schema import select_partials
from rtolap.columnar.sum_bounds import SumBound, largest_of_column, sum_limit
from rtolap.query.plan import CubeRead
from rtolap.scan.groups import group
from rtolap.scan.keys import code

_GROUP = "__group"


def group_partials(read: CubeRead, table: pa.Table) -> pa.Table:
    """Return a row per combination of dimensions, with merged partials.

    Rows whose sums may overflow stay apart.

    A read without dimensions over no rows stays empty. Raises Corrupted for bytes that are no sketch.
    """
    schema = read.columns
    partials = select_partials(read.schema, read.partials)
    if table.num_rows < 2 or _may_overflow(table, partials):
        return table.select(schema.names).cast(schema)
    if any(partial.accumulator.arrow_kernel is None for partial in partials):
        return _group_by_number(read, table, partials).select(schema.names).cast(schema)
    operations: list[Any] = [(partial.name, partial.accumulator.arrow_kernel) for partial in partials]
    grouped = table.group_by(list(read.dimensions), use_threads=True).aggregate(operations)
    renamed = grouped.rename_columns(
        [name if name in read.dimensions else name.rsplit("_", 1)[0] for name in grouped.column_names]
    )
    return renamed.select(schema.names).cast(schema)


def is_grouped(read: CubeRead, table: pa.Table) -> bool:
    """Return True if no two rows have the same dimensions."""
    if table.num_rows < 2:
        return True
    if len(read.dimensions) == 1:
        distinct = pc.count_distinct(table.column(read.dimensions[0]), mode="all").as_py()
        return bool(distinct == table.num_rows)
    keys = [code(single_chunk(table.column(name))) for name in read.dimensions]
    return bool(group(keys, table.num_rows).size == table.num_rows)


def _may_overflow(table: pa.Table, partials: Sequence[Partial]) -> bool:
    """Return True if a sum of all rows might leave its type, which Arrow's kernels would not notice."""
    for partial in partials:
        limit = sum_limit(partial.type)
        if not partial.accumulator.adds or limit is None:
            continue
        largest = largest_of_column(single_chunk(table.column(partial.name)))
        if not SumBound(limit).add_numbers(largest, table.num_rows):
            return True
    return False


def _group_by_number(read: CubeRead, table: pa.Table, partials: Sequence[Partial]) -> pa.Table:
    """Return the same with group numbers of our own, for partials that Arrow cannot merge; sorted by the
    numbers, so that columns align.
    """
    keys = [code(single_chunk(table.column(name))) for name in read.dimensions]
    groups = group(keys, table.num_rows)
    columns: dict[str, Any] = {name: table.column(name).take(groups.first) for name in read.dimensions}
    kernels = {partial.name: partial.accumulator.arrow_kernel for partial in partials}
    by_arrow: list[Any] = [(name, kernel) for name, kernel in kernels.items() if kernel is not None]
    numbered = table.select([name for name, _ in by_arrow]).append_column(_GROUP, pa.array(groups.ids))
    grouped = numbered.group_by(_GROUP, use_threads=False).aggregate(by_arrow).sort_by(_GROUP)
    for partial in partials:
        kernel = kernels[partial.name]
        if kernel is None:
            numbers = GroupedArray(table.column(partial.name), groups.ids, groups.size)
            columns[partial.name] = partial.accumulator.merge(numbers, partial.type)
        else:
            columns[partial.name] = grouped.column(f"{partial.name}_{kernel}")
    return pa.table(columns)


def merge(read: CubeRead, tables: Iterable[pa.Table]) -> pa.Table:
    """Return all tables under the read's schema. Raises pyarrow.ArrowInvalid for columns of another type."""
    schema = read.columns
    same = [
        table if table.schema.equals(schema) else table.select(schema.names).cast(schema) for table in tables
    ]
    return same[0] if len(same) == 1 else pa.concat_tables([schema.empty_table(), *same])
