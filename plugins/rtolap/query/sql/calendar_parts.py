"""`YEAR(c) = 2013` and `DATE(c) = '2013-01-02'` as ranges of `c`, so that they prune like any range."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from sqlglot import exp

from rtolap.model.cube import TimeUnit
from rtolap.model.predicate import And, Compare, CompareOp, Or, Predicate
from rtolap.query.sql.timeline import as_datetime, next_start, text

_ANY_WEEKDAY = 0  # no part of a date is a week


class CalendarPart(NamedTuple):
    """The unit of time that an instant of `column` lies in."""

    column: exp.Column
    unit: TimeUnit


def calendar_part(node: exp.Expr) -> CalendarPart | None:
    """None for anything else; other parts of a date, as MONTH, are no ranges."""
    node = node.unnest()
    inner: exp.Expr | None = None
    unit: TimeUnit = "year"
    if isinstance(node, exp.Year):
        inner = _without_date(node.this)
    elif isinstance(node, exp.Extract) and node.name.upper() == "YEAR":
        inner = _without_date(node.expression)
    elif (dated := _without_date(node)) is not node:
        inner, unit = dated, "day"
    return CalendarPart(inner, unit) if isinstance(inner, exp.Column) else None


def as_range(column: str, unit: TimeUnit, op: CompareOp, value: object) -> Predicate | None:
    """Return the exact predicate on the column itself for `<unit of column> <op> <value>`; None if there is
    none."""
    start = _start(unit, value)
    following = None if start is None else next_start(start, unit, _ANY_WEEKDAY)
    if start is None or following is None:
        return None
    low, high = text(start), text(following)
    match op:
        case "eq":
            return And((Compare(column, "ge", low), Compare(column, "lt", high)))
        case "ne":
            return Or((Compare(column, "lt", low), Compare(column, "ge", high)))
        case "lt" | "ge":
            return Compare(column, op, low)
        case "le":
            return Compare(column, "lt", high)
        case "gt":
            return Compare(column, "ge", high)
    return None


def _start(unit: TimeUnit, value: object) -> datetime | None:
    """Return where the unit that the constant names begins; None if it names none."""
    if unit == "year":
        if not isinstance(value, int) or isinstance(value, bool):
            return None
        return datetime(value, 1, 1) if 1 <= value <= datetime.max.year else None
    instant = as_datetime(value)
    is_midnight = instant is not None and instant == datetime(instant.year, instant.month, instant.day)
    return instant if is_midnight else None


def _without_date(node: exp.Expr) -> exp.Expr:
    """The inner expression of DATE(…) or CAST(… AS DATE); the node itself if it is neither."""
    node = node.unnest()
    is_cast = isinstance(node, exp.Cast) and node.to.this is exp.DataType.Type.DATE
    return node.this.unnest() if is_cast or isinstance(node, exp.TsOrDsToDate | exp.Date) else node
