"""A bound on the event time → a bound on a time dimension, exactly or by the cube's declared policy.

An instant that begins a unit of a time dimension is exact. Any other instant lies within a unit, and the cube
cannot tell the events before it from those after it. With `time_filters: align` the whole unit counts: a
lower bound moves back to the unit's start and an upper bound to its end, so that no requested event is
missed, and a warning names the instant. Under a NOT the bounds move the other way, for the same reason. With
`refuse` it is an error.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from sqlglot import exp

from rtolap.base.errors import QueryError
from rtolap.model.cube import TIME_UNITS, Cube, TimeUnit
from rtolap.protocols.query.messages import QueryWarning
from rtolap.query.sql.dialect import user_sql
from rtolap.query.sql.rules.context import CubeScope
from rtolap.query.sql.timeline import floor, next_start, text

_CLOCKS = (exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentDatetime, exp.UtcTimestamp, exp.UtcDate)


class TimeBound(NamedTuple):
    """A bound on a time dimension.

    Attributes:
        unit: unit of the time dimension.
        start: the start of a unit; None: beyond the calendar.
        warnings: warnings of a bound that is not exact.
    """

    unit: TimeUnit
    start: datetime | None
    warnings: tuple[QueryWarning, ...] = ()


def time_bound(instant: datetime, is_lower: bool, condition: exp.Expr, cube: CubeScope) -> TimeBound:
    """Return the bound `>= instant`, or `< instant`, of the condition `condition`.

    QueryError where it is refused.
    """
    definition = cube.schema.cube
    unit = _begun_unit(instant, definition)
    if unit is not None:
        return TimeBound(unit, instant)
    finest = definition.finest_unit
    if finest is None or definition.time_filters == "refuse":
        raise _refused(instant, condition, cube)
    first_weekday = definition.days_to_first_weekday
    start: datetime | None
    if is_lower != _is_negated(condition):
        start = max(floor(instant, unit, first_weekday) for unit in definition.time_dimensions)
    else:
        following = [next_start(instant, unit, first_weekday) for unit in definition.time_dimensions]
        start = min((end for end in following if end is not None), default=None)
    if start is None:
        return TimeBound(finest, None)
    side = "from" if is_lower else "up to"
    warning = QueryWarning(
        "time_aligned",
        "Warning",
        f"cube {definition.name} keeps time by the {_name(finest)}: {user_sql(condition)} counts {side} "
        f"{_shown(start)}, not {_shown(instant)}",
    )
    return TimeBound(_begun_unit(start, definition) or finest, start, (warning,))


def clock_warnings(constant: exp.Expr, cube: CubeScope) -> tuple[QueryWarning, ...]:
    """Warn of NOW(): it is UTC, and hours off when it is compared with the local time of another zone."""
    zone = cube.schema.table.time.zone
    if zone == "UTC" or constant.find(*_CLOCKS) is None or _is_converted(constant):
        return ()
    message = (
        f"the event time of cube {cube.schema.cube.name} reads as local time of {zone}, while NOW() and its "
        f"like are UTC: write CONVERT_TZ(NOW(), 'UTC', '{zone}')"
    )
    return (QueryWarning("clock_in_utc", "Warning", message),)


def _is_converted(constant: exp.Expr) -> bool:
    moved = any(str(call.this) == "MYSQL_SHIFTED" for call in constant.find_all(exp.Anonymous))
    return moved or constant.find(exp.AtTimeZone, exp.ConvertTimezone) is not None


def _begun_unit(instant: datetime, cube: Cube) -> TimeUnit | None:
    """Return the coarsest of the cube's units that begins at the instant: it is in the smallest cuboids."""
    for unit in reversed(TIME_UNITS):
        if unit in cube.time_dimensions and floor(instant, unit, cube.days_to_first_weekday) == instant:
            return unit
    return None


def _is_negated(condition: exp.Expr) -> bool:
    """Return True if the condition stands under an odd number of NOTs."""
    negations, node = 0, condition.parent
    while isinstance(node, exp.And | exp.Or | exp.Paren | exp.Not):
        negations += isinstance(node, exp.Not)
        node = node.parent
    return negations % 2 == 1


def _refused(instant: datetime, condition: exp.Expr, cube: CubeScope) -> QueryError:
    definition = cube.schema.cube
    finest = definition.finest_unit
    precision = "segment only" if finest is None else _name(finest)
    name = definition.name
    message = f"cube {name} keeps time by the {precision}: {user_sql(condition)} cannot be answered exactly"
    if finest is None:
        return QueryError(
            message,
            expected="no condition on the event time",
            found=text(instant),
            action="add a time dimension to the cube",
        )
    return QueryError(
        message,
        expected=f">= or < the start of a {_name(finest)}",
        found=text(instant),
        action="align the instant, add a finer time dimension to the cube, or declare time_filters: align, "
        "which counts whole units with a warning",
    )


def _name(unit: TimeUnit) -> str:
    return unit.replace("_minute", " minutes")


def _shown(instant: datetime) -> str:
    return text(instant).removesuffix(".000000")
