"""Sums that leave their type stay exact, as several rows of one group.

Spark raises where a sum leaves its type, whichever order it adds in. The embedded engine leaves rows apart
then, and the statement decides what the sum means. So the read is repeated with wider sums: those of whole
numbers as decimals, those of decimals in two parts, `high` times 10^20 and `low`. Each total becomes as many
rows of its group as its type needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rtolap.aggregates.accumulator import Partial
from rtolap.aggregates.spark_sql import merged, quoted
from rtolap.columnar.schema import select_partials
from rtolap.columnar.sum_bounds import sum_limit
from rtolap.query.plan import CubeRead

_LOW_DIGITS = 20  # of 38: `high` has 18, which a bigint holds
_CONTEXT = Context(prec=100)


def is_wide(partial: Partial) -> bool:
    """Return True if sums of the partial may leave its type."""
    return partial.accumulator.adds and sum_limit(partial.type) is not None


def wide_columns(partial: Partial) -> Iterator[tuple[str, str]]:
    """Yield name and expression of each column that stands for the partial."""
    column = quoted(partial.name)
    if not is_wide(partial):
        yield partial.name, merged(partial)
    elif partial.type.kind == "bigint":
        yield partial.name, f"sum(CAST({column} AS decimal(38,0)))"
    else:
        unit = f"CAST('1e{_LOW_DIGITS - partial.type.scale}' AS decimal(38,{partial.type.scale}))"
        yield _high(partial), f"sum(CAST({column} div {unit} AS decimal(38,0)))"
        yield _low(partial), f"sum(CAST({column} % {unit} AS decimal(38,{partial.type.scale})))"


def narrowed(read: CubeRead, table: pa.Table) -> pa.Table:
    """Return the rows under the read's schema, with as many rows for each group as its sums need."""
    partials = select_partials(read.schema, read.partials)
    totals = {each.name: _totals(each, table) for each in partials if is_wide(each)}
    limits = {each.name: sum_limit(each.type) or 0 for each in partials if is_wide(each)}
    counts = [
        max((_pieces(totals[name][row], limits[name]) for name in totals), default=1)
        for row in range(table.num_rows)
    ]
    rows = [row for row, count in enumerate(counts) for _ in range(count)]
    firsts = [number == 0 for count in counts for number in range(count)]
    numbers = [number for count in counts for number in range(count)]
    columns: list[Any] = []
    for field in read.columns:
        if field.name in totals:
            limit, of_groups = limits[field.name], totals[field.name]
            values = [
                _piece(of_groups[row], limit, number) for row, number in zip(rows, numbers, strict=True)
            ]
            columns.append(_as_column(values, field))
        else:
            column = table.column(field.name).take(pa.array(rows, pa.int64())).cast(field.type)
            if field.name in read.partials:  # merging passes over nulls
                kept = pa.array(firsts, pa.bool_())
                column = pc.if_else(kept, column, pa.scalar(None, field.type))
            columns.append(column)
    return pa.table(columns, read.columns)


def _high(partial: Partial) -> str:
    return f"{partial.name}__high"


def _low(partial: Partial) -> str:
    return f"{partial.name}__low"


def _totals(partial: Partial, table: pa.Table) -> Sequence[int | None]:
    """Return the sums of the groups, unscaled."""
    if partial.type.kind == "bigint":
        return [None if value is None else int(value) for value in table.column(partial.name).to_pylist()]
    highs, lows = (table.column(name).to_pylist() for name in (_high(partial), _low(partial)))
    return [
        None if high is None else int(high) * 10**_LOW_DIGITS + int(low.scaleb(partial.type.scale, _CONTEXT))
        for high, low in zip(highs, lows, strict=True)
    ]


def _pieces(total: int | None, limit: int) -> int:
    return 1 if not total else -(-abs(total) // limit)


def _piece(total: int | None, limit: int, number: int) -> int | None:
    """Return the part of the total that the group's row of this number has."""
    if total is None:
        return None
    size = min(limit, max(0, abs(total) - number * limit))
    return size if total >= 0 else -size


def _as_column(values: Sequence[int | None], field: pa.Field) -> pa.Array:
    if not pa.types.is_decimal(field.type):
        return pa.array(values, field.type)
    scale = -field.type.scale
    return pa.array(
        [None if value is None else Decimal(value).scaleb(scale, _CONTEXT) for value in values], field.type
    )
