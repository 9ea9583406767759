"""Rows of partial aggregates with equal keys as one row each.

Partials in a receiver's form are merged by their accumulators. Plain ones are merged by Arrow's kernels,
which take less processor time, unless a partial has no kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rtolap.aggregates.accumulator import Partial
from rtolap.columnar.chunks import single_chunk
from rtolap.columnar.grouped import GroupedArray
from rtolap.columnar.sum_bounds import largest_of_column, sum_fits, sum_limit
from rtolap.scan.groups import group, keys_of_groups
from rtolap.scan.keys import Coded, code


def key_columns(table: pa.Table, names: Sequence[str]) -> dict[str, Coded]:
    """Return the columns as codes."""
    return {name: code(single_chunk(table.column(name))) for name in names}


def merge_by_codes(
    table: pa.Table, keys: Mapping[str, Coded], partials: Sequence[Partial], *, local: bool
) -> pa.Table:
    """Return a row for each combination of the keys, strings of keys as dictionaries.

    `local`: True for partials in a receiver's form, False for plain ones. Raises Refused for a sum beyond its
    type, and Corrupted for bytes that are no sketch.
    """
    groups = group(tuple(keys.values()), table.num_rows)
    columns: dict[str, Any] = {name: keys_of_groups(key, groups) for name, key in keys.items()}
    for partial in partials:
        merge = partial.accumulator.merge_local if local else partial.accumulator.merge
        column = table.column(partial.name)  # plain sketches of many chunks may be more than one array holds
        rows = GroupedArray(single_chunk(column) if local else column, groups.ids, groups.size)
        columns[partial.name] = merge(rows, partial.type)
    return pa.table(columns)


def merge_plain(table: pa.Table, names: Sequence[str], partials: Sequence[Partial]) -> pa.Table:
    """Return a row for each combination of the named columns, partials in plain form.

    Rows whose sums may overflow stay apart. No names over no rows gives no row. Raises Corrupted for
    bytes that are no sketch.
    """
    if table.num_rows < 2 or _may_overflow(table, partials):
        return table
    kernels: list[Any] = [(partial.name, partial.accumulator.arrow_kernel) for partial in partials]
    if any(kernel is None for _, kernel in kernels):
        return merge_by_codes(table, key_columns(table, names), partials, local=False)
    merged = table.group_by(list(names), use_threads=True).aggregate(kernels)
    return merged.rename_columns(
        [name if name in names else name.rsplit("_", 1)[0] for name in merged.column_names]
    )


def has_distinct_keys(table: pa.Table, names: Sequence[str]) -> bool:
    """Return True if no two rows have the same values in the named columns."""
    if table.num_rows < 2:
        return True
    if len(names) == 1:
        distinct = pc.count_distinct(table.column(names[0]), mode="all").as_py()
        return bool(distinct == table.num_rows)
    keys = tuple(key_columns(table, names).values())
    return bool(group(keys, table.num_rows).size == table.num_rows)


def _may_overflow(table: pa.Table, partials: Sequence[Partial]) -> bool:
    """Return True if a sum of all rows might leave its type, which Arrow's kernels would not notice."""
    for partial in partials:
        limit = sum_limit(partial.type)
        if not partial.accumulator.adds or limit is None:
            continue
        largest = largest_of_column(single_chunk(table.column(partial.name)))
        if not sum_fits(largest, table.num_rows, limit):
            return True
    return False
