"""Rows of ours and of MariaDB's as values that can be compared, whatever client they came through."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from math import isclose

import pyarrow as pa
from rtolap.query.durations import durations_us, is_duration, time_text

_DOUBLE_TOLERANCE = 1e-9
_DECIMAL_TOLERANCE = 5.1e-5  # a quotient of MySQL's has four more digits, ours is a double

Row = tuple[object, ...]


def our_rows(table: pa.Table) -> list[Row]:
    columns = []
    for column in table.columns:
        if is_duration(column.type):
            columns.append([None if us is None else time_text(us) for us in durations_us(column)])
        else:
            columns.append(column.to_pylist())
    return list(zip(*columns, strict=True))


def compared(ours: Sequence[Row], theirs: Sequence[Row]) -> str:
    """Return the difference, empty if both are the same rows, in any order."""
    mine, other = (
        sorted(([_plain(value) for value in row] for row in rows), key=_order) for rows in (ours, theirs)
    )
    if len(mine) != len(other):
        return f"{len(mine)} rows, theirs {len(other)}: {mine[:9]}, theirs {other[:9]}"
    for one, two in zip(mine, other, strict=True):
        if not all(map(_alike, one, two)):
            return f"{one}, theirs {two}"
    return ""


def _order(row: list[object]) -> list[str]:
    return [str(value) for value in row]


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, bool | int):
        return Decimal(int(value))
    if isinstance(value, datetime):
        return value.isoformat(" ")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return time_text(round(value / timedelta(microseconds=1)))
    return value


def _alike(one: object, two: object) -> bool:
    if isinstance(one, float) or isinstance(two, float):
        if not isinstance(one, float | Decimal) or not isinstance(two, float | Decimal):
            return False
        rounded = _DECIMAL_TOLERANCE if isinstance(one, Decimal) or isinstance(two, Decimal) else 0.0
        return isclose(float(one), float(two), rel_tol=_DOUBLE_TOLERANCE, abs_tol=rounded)
    if isinstance(one, str) and isinstance(two, str) and one != two:
        return one == f"{two} 00:00:00" or two == f"{one} 00:00:00"
    return type(one) is type(two) and one == two
