"""Predicate values against Arrow columns: exact, whatever the value's and the column's types are.

Comparing 1.5 with a whole number, or 2.345 with a decimal(10,2), must not round either side. Such a value
becomes a *place* between two values the column can hold, and the comparison moves to its neighbours.
"""

from __future__ import annotations

import math
import sys
from datetime import date, datetime
from decimal import Context, Decimal, InvalidOperation
from typing import Any, NamedTuple

import pyarrow as pa

from rtolap.base.errors import QueryError
from rtolap.model.predicate import Scalar


class Place(NamedTuple):
    """The place of a literal among a column's values.

    Attributes:
        value: the equal value, or else the largest one below; None where the literal is below all of them.
        above_all: True where the literal is larger than anything that the column can hold.
    """

    value: Any
    exact: bool
    above_all: bool = False


def comparison(op: str, at: Place) -> str | bool:
    """Return the operator to compare a column with `at.value` by, in the place of `op` with the literal; or
    what holds for every value of the column that is not null."""
    if at.exact:
        return op
    # The literal lies between at.value and the next one (or outside all): eq never, the rest by neighbours.
    if op in ("eq", "ne"):
        return op == "ne"
    if at.value is None:
        return op in ("gt", "ge")
    if at.above_all:
        return op in ("lt", "le")
    return "le" if op in ("lt", "le") else "gt"


_WIDE = Context(prec=400)
_TIMESTAMP_FORMATS = ("%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d")


def place(value: Scalar, kind: pa.DataType) -> Place:
    """Return where `value`, not null, stands among the values of a column. QueryError when they do not
    compare."""
    try:
        if pa.types.is_integer(kind):
            limit = 1 << (kind.bit_width - 1)
            return _numeric(_decimal(value), Decimal(1), Decimal(-limit), Decimal(limit - 1), int)
        if pa.types.is_decimal(kind):
            quantum = Decimal(1).scaleb(-kind.scale)
            largest = Decimal(10**kind.precision - 1).scaleb(-kind.scale)
            return _numeric(_decimal(value), quantum, -largest, largest, lambda found: found)
        if pa.types.is_floating(kind):
            return _double(value)
        if pa.types.is_boolean(kind) and isinstance(value, bool):
            return Place(value, True)
        if isinstance(value, str):
            if pa.types.is_string(kind) or pa.types.is_large_string(kind):
                return Place(value, True)
            if pa.types.is_date(kind):
                return _date(value)
            if pa.types.is_timestamp(kind):
                return Place(_timestamp(value), True)
    except (ValueError, InvalidOperation):
        pass  # falls through to the one message below
    raise QueryError("a filter compares values of different types", expected=str(kind), found=repr(value))


def _decimal(value: Scalar) -> Decimal:
    if isinstance(value, bool) or value is None:
        raise ValueError(value)
    decimal = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if decimal.is_nan():
        raise ValueError(value)
    return decimal


def _numeric(value: Decimal, quantum: Decimal, lowest: Decimal, highest: Decimal, cast: Any) -> Place:
    if value > highest:
        return Place(cast(highest), False, above_all=True)
    if value < lowest:
        return Place(None, False)
    _, _, exponent = quantum.as_tuple()
    assert isinstance(exponent, int), "a quantum is finite"
    scaled = math.floor(value.scaleb(-exponent, _WIDE))
    floor = Decimal(scaled).scaleb(exponent, _WIDE)
    return Place(cast(floor), floor == value)


def _double(value: Scalar) -> Place:
    """Return the nearest double of a written number, which the column would hold; whole numbers stay
    exact."""
    exact = _decimal(value)
    nearest = float(exact)
    if math.isinf(nearest) and not exact.is_infinite():
        return Place(math.copysign(sys.float_info.max, nearest), False, above_all=nearest > 0)
    if isinstance(value, int) and Decimal(nearest) != exact:
        below = nearest if Decimal(nearest) < exact else math.nextafter(nearest, -math.inf)
        return Place(below, False)
    return Place(nearest, True)


def _date(text: str) -> Place:
    if len(text) == 10:
        return Place(date.fromisoformat(text), True)
    instant = _timestamp(text)  # a date is its midnight
    return Place(instant.date(), instant == datetime(instant.year, instant.month, instant.day))


def _timestamp(text: str) -> datetime:
    for pattern in _TIMESTAMP_FORMATS:
        try:
            return datetime.strptime(text.replace("T", " "), pattern)
        except ValueError:
            continue
    raise ValueError(text)
