"""The part of a source's groups by which the first groups of all sources together are found.

A source sends its first groups, those that it is asked for, and those that are as large as a bound. Of what
it leaves out it says the largest value: no other group of it can have more.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rtolap.columnar.chunks import single_chunk

GROUPS_MIN = 1024  # fewer are sent as soon as they are looked at
Key = str | int | None
Number = int | Decimal


class Chosen(NamedTuple):
    """Rows of a source.

    Attributes:
        largest_left: the largest value of the rows that are left out, 0 if they have none; None: no row is.
    """

    rows: pa.Table
    largest_left: Number | None


def choose_groups(
    table: pa.Table,
    key: str,
    column: str,
    rows: int,
    among: Sequence[Key] | None = None,
    above: Number | None = None,
) -> Chosen:
    """Return the groups with the largest values, all that equal the last of them, and those that are named.

    Args:
        table: one row for each group; if rows of a group lie apart, all rows are chosen.
        key: the column that names groups, of texts or whole numbers, dictionaries of them too.
        column: the values, whole numbers or decimals.
        rows: how many of the largest.
        among: groups that are asked for by name.
        above: groups with values of at least this are chosen too.
    """
    if table.num_rows <= max(GROUPS_MIN, rows) or not _is_exact(table.column(column).type):
        return Chosen(table, None)
    keys: Any = single_chunk(table.column(key))
    if not has_distinct_values(keys):
        return Chosen(table, None)
    values: Any = single_chunk(table.column(column))
    wanted = np.zeros(table.num_rows, bool)
    first = min(rows, table.num_rows - values.null_count)
    if first:
        places = pc.select_k_unstable(pa.table({"value": values}), first, [("value", "descending")])
        wanted |= _at_least(values, values[places[-1].as_py()])
    if above is not None:
        wanted |= _at_least(values, pa.scalar(above, values.type))
    if among:
        wanted |= _is_among(keys, among)
    if wanted.all():
        return Chosen(table, None)
    left = pc.max(values.filter(pa.array(~wanted))).as_py()
    return Chosen(table.filter(pa.array(wanted)), 0 if left is None else left)


def has_distinct_values(keys: Any) -> bool:
    """Tell whether no value comes twice, NULL included."""
    if keys.null_count > 1:
        return False
    if pa.types.is_dictionary(keys.type):  # which names each value once: rows are grouped by its codes
        codes = keys.indices.drop_null().to_numpy()
        return not len(codes) or int(np.bincount(codes).max()) == 1
    return int(pc.count_distinct(keys, mode="all").as_py()) == len(keys)


def _is_among(keys: Any, among: Sequence[Key]) -> Any:
    if not pa.types.is_dictionary(keys.type):
        return pc.is_in(keys, value_set=pa.array(among, keys.type)).to_numpy(zero_copy_only=False)
    named = pc.is_in(keys.dictionary, value_set=pa.array(among, keys.dictionary.type))
    found = named.take(keys.indices).fill_null(None in among)
    return found.to_numpy(zero_copy_only=False)


def _is_exact(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal128(kind))


def _at_least(values: Any, least: Any) -> Any:
    found = pc.greater_equal(values, least).fill_null(False)
    return found.to_numpy(zero_copy_only=False)
