"""The rows of a plain merge by Arrow's kernels, exactly as the engine gives them: schema, values, order.

What these kernels may do otherwise than the engine is left to it: rows of one group that stay apart because
their sums may overflow, doubles that are not finite, numbers that no double holds exactly, and more than
BYTES_MAX or SKETCHES_MAX.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rtolap.columnar.chunks import single_chunk
from rtolap.columnar.sum_bounds import whole_words
from rtolap.protocols.receiver.messages import TopGroups
from rtolap.query.cubes.merge import group_partials
from rtolap.query.engine_functions.sketches import hll_estimate
from rtolap.query.engine_functions.value_sets import sizes
from rtolap.query.plan import CubeRead, MergedColumn, MergedOrder, PlainMerge
from rtolap.scan.merge import has_distinct_keys

BYTES_MAX = 8 << 20  # of partials: more of them are worth a worker, which the system bounds
TOP_ROWS_MAX = 10_000  # a LIMIT, with its OFFSET, for which receivers choose groups
SKETCHES_MAX = 256  # one after the other, beside all other statements of this process
_EXACT_MAX = 1 << 53  # up to here every whole number is a double


class _LeftToEngine(Exception):
    """The engine's answer may be another one."""


def top_groups(read: CubeRead, merge: PlainMerge, values: Mapping[str, object]) -> TopGroups | None:
    """Return the groups of a plain merge that are enough for its LIMIT; None where all are needed.

    Args:
        values: parameter → value.
    """
    if merge.limit is None or not merge.order or len(read.dimensions) != 1:
        return None
    key = merge.order[0]
    if key.column.kind not in ("value", "sum", "count") or key.column.source in read.dimensions:
        return None
    try:
        _, stop = _bounds(merge, values)
    except _LeftToEngine:
        return None
    if not stop or stop > TOP_ROWS_MAX:
        return None
    return TopGroups(key.column.source, key.descending, key.nulls_first, stop)


def merged_answer(
    read: CubeRead, merge: PlainMerge, table: pa.Table, values: Mapping[str, object]
) -> pa.Table | None:
    """Compute the answer of a plain merge. Return None if the engine has to compute it.

    Args:
        table: the read's partials.
        values: parameter → value.

    Raises Corrupted for bytes that are no sketch or set, and OutOfRange for a set that is too large.
    """
    if table.nbytes > BYTES_MAX:
        return None
    try:
        start, stop = _bounds(merge, values)
        groups = _groups(read, table)
        made: dict[MergedColumn, Any] = {}
        for column in (*(column for _, column in merge.columns), *(key.column for key in merge.order)):
            if column not in made:
                made[column] = _column(column, groups)
    except _LeftToEngine:
        return None
    answer = pa.table([made[column] for _, column in merge.columns], [name for name, _ in merge.columns])
    if merge.order and answer.num_rows > 1:
        answer = answer.take(_order(merge.order, made))
    if start or stop is not None:
        answer = answer.slice(start, None if stop is None else max(0, stop - start))
    return answer


def _bounds(merge: PlainMerge, values: Mapping[str, object]) -> tuple[int, int | None]:
    """Return the first row and the one behind the last."""
    limit, offset = (values[n] if isinstance(n, str) else n for n in (merge.limit, merge.offset))
    for given, written in ((limit, merge.limit), (offset, merge.offset)):
        if written is not None and (type(given) is not int or given < 0):
            raise _LeftToEngine
    start = offset if isinstance(offset, int) else 0
    return start, start + limit if isinstance(limit, int) else None


def _groups(read: CubeRead, table: pa.Table) -> pa.Table:
    """Return a row per group. Without dimensions there is one row, even over no events."""
    if not has_distinct_keys(table, read.dimensions):
        table = group_partials(read, table)
        if not has_distinct_keys(table, read.dimensions):
            raise _LeftToEngine
    if not read.dimensions and not table.num_rows:
        return pa.table([pa.nulls(1, field.type) for field in table.schema], table.schema)
    return table


def _column(column: MergedColumn, groups: pa.Table) -> pa.Array[Any]:
    source = single_chunk(groups.column(column.source))
    match column.kind:
        case "value":
            return _checked(source)
        case "count":
            return source.fill_null(0) if source.null_count else source
        case "sum":
            return _sum(source)
        case "mean":
            return _mean(source, single_chunk(groups.column(column.count)))
        case "distinct":
            if len(source) > SKETCHES_MAX:
                raise _LeftToEngine
            offsets = np.arange(len(source) + 1, dtype=np.int32)
            return hll_estimate(pa.ListArray.from_arrays(offsets, source)).cast(pa.int64())
        case "set_size":
            return sizes(source, np.arange(len(source)), len(source))


def _checked(source: Any) -> Any:
    """Leave NaN and infinities to the engine, which orders and sums them in its own way."""
    if pa.types.is_floating(source.type) and pc.all(pc.is_finite(source)).as_py() is False:
        raise _LeftToEngine
    return source


def _sum(source: Any) -> Any:
    if pa.types.is_decimal(source.type):
        return source.cast(pa.decimal128(38, source.type.scale))
    return pc.add(_checked(source), 0.0)  # a sum that begins with 0 is never -0


def _mean(total: Any, count: Any) -> Any:
    divisor = _doubles(count)
    with np.errstate(divide="ignore", invalid="ignore"):
        quotients = _doubles(total) / divisor
    is_null = ~_valid(total) | ~_valid(count) | (divisor == 0)
    return pa.array(quotients, pa.float64(), mask=is_null)


def _doubles(source: Any) -> Any:
    """Return the numbers as doubles, anything where there is none."""
    if pa.types.is_floating(source.type):
        return _checked(source).fill_null(0.0).to_numpy() + 0.0
    scale = source.type.scale if pa.types.is_decimal(source.type) else 0
    words = whole_words(source)
    numbers = words[:, 0]
    is_wide = (numbers > _EXACT_MAX) | (numbers < -_EXACT_MAX)
    if words.shape[1] > 1:
        is_wide |= words[:, 1] != numbers >> 63
    if bool((is_wide & _valid(source)).any()):
        raise _LeftToEngine
    return numbers.astype(np.float64) / 10.0**scale


def _valid(source: Any) -> Any:
    if not source.null_count:
        return np.ones(len(source), bool)
    return source.is_valid().to_numpy(zero_copy_only=False)


def _order(order: Sequence[MergedOrder], made: Mapping[MergedColumn, Any]) -> Any:
    """Return row numbers in order.

    Whether there is a value is a key of its own: NULL comes first or last by key.
    """
    columns: list[Any] = []
    directions: list[tuple[str, str]] = []
    for key in order:
        column = made[key.column]
        if column.null_count:
            directions.append((str(len(columns)), "ascending" if key.nulls_first else "descending"))
            columns.append(column.is_valid())
        directions.append((str(len(columns)), "descending" if key.descending else "ascending"))
        columns.append(column)
    keys = pa.table(columns, [str(number) for number in range(len(columns))])
    return pc.sort_indices(keys, sort_keys=directions)
