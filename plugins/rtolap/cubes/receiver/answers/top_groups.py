"""The first groups of an answer: what a receiver that answers alone needs to send of a long list of groups.

A group is sent if fewer than `rows` others come before it. Groups that are equal to the last of these are
sent too, because the statement may order them by something else. Whatever is not plain (rows of one group
that lie apart, doubles that are not finite) is sent as a whole: who asked orders it all the same.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rtolap.columnar.chunks import single_chunk
from rtolap.protocols.receiver.messages import GroupsLeft, TopGroups
from rtolap.scan.first_groups import choose_groups, has_distinct_values

GROUPS_MIN = 1024  # fewer are sent as soon as they are looked at


def first_groups(table: pa.Table, dimensions: tuple[str, ...], top: TopGroups) -> pa.Table:
    """Return the rows of the groups that may be among the first, in any order.

    Args:
        table: rows of partials, dimensions as values or in dictionary codes.
    """
    if table.num_rows <= max(GROUPS_MIN, top.rows) or top.column not in table.column_names:
        return table
    if len(dimensions) != 1 or not has_distinct_values(single_chunk(table.column(dimensions[0]))):
        return table
    values: Any = single_chunk(table.column(top.column))
    if not _is_ordered(values):
        return table
    missing = values.null_count
    wanted = top.rows - missing if top.nulls_first else top.rows
    if not top.nulls_first and table.num_rows - missing < top.rows:
        return table
    rows = pc.is_null(values) if top.nulls_first else pa.array(np.zeros(len(values), bool))
    if wanted > 0:
        order = "descending" if top.descending else "ascending"
        named = pa.table({"value": values})
        last = values[pc.select_k_unstable(named, wanted, [("value", order)])[-1].as_py()]
        inside = pc.greater_equal(values, last) if top.descending else pc.less_equal(values, last)
        rows = pc.or_(rows, inside.fill_null(False))
    return table.filter(rows)


def spread_groups(
    table: pa.Table, dimensions: tuple[str, ...], top: TopGroups
) -> tuple[pa.Table, GroupsLeft]:
    """Return the rows of the groups that a spread question asks for, and what they leave out.

    Args:
        table: rows of partials, dimensions as values or in dictionary codes.
    """
    if len(dimensions) != 1 or top.column not in table.column_names:
        return table, GroupsLeft(None)
    above: int | Decimal | None = None
    if top.above is not None:
        is_whole = pa.types.is_integer(table.column(top.column).type)
        above = int(top.above) if is_whole else Decimal(top.above)
    chosen = choose_groups(table, dimensions[0], top.column, top.rows, top.among, above)
    return chosen.rows, GroupsLeft(None if chosen.largest_left is None else str(chosen.largest_left))


def _is_ordered(values: Any) -> bool:
    kind = values.type
    if pa.types.is_floating(kind):
        return bool(pc.all(pc.is_finite(values), min_count=0).as_py())
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal128(kind) or pa.types.is_temporal(kind))
