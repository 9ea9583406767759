"""The instants at which a filter can be true: what segments and partitions need not be looked at.

Pure, and never too few: a condition without time is unbounded.
"""

from __future__ import annotations

from datetime import UTC, datetime

from rtolap.model.cube import TIME_UNITS, Schema, TimeUnit
from rtolap.model.predicate import And, Compare, In, Or, Predicate
from rtolap.query.plan import TimeRange
from rtolap.query.sql.timeline import as_datetime, floor, next_start, to_utc_ms

_UNITS: dict[str, TimeUnit] = {f"{unit}_start": unit for unit in TIME_UNITS}
_NOWHERE = TimeRange(0, 0)


def time_range(predicate: Predicate | None, schema: Schema) -> TimeRange:
    """Return the event time of a cube's rows that the predicate can be true for."""
    match predicate:
        case And(terms=terms):
            starts, ends = [], []
            for term in terms:
                part = time_range(term, schema)
                starts += [] if part.start_ms is None else [part.start_ms]
                ends += [] if part.end_ms is None else [part.end_ms]
            return TimeRange(max(starts, default=None), min(ends, default=None))
        case Or(terms=terms) if terms:
            united = time_range(terms[0], schema)
            for term in terms[1:]:
                united = united.union(time_range(term, schema))
            return united
        case In(column=column, values=values, negated=False) if values and _is_time(column, schema):
            united = _compared(column, "eq", values[0], schema)
            for value in values[1:]:
                united = united.union(_compared(column, "eq", value, schema))
            return united
        case Compare(column=column, op=op, value=value):
            return _compared(column, op, value, schema)
    return TimeRange()


def _compared(column: str, op: str, value: object, schema: Schema) -> TimeRange:
    unit = _UNITS.get(column)
    if unit is None or not _is_time(column, schema) or op == "ne":
        return TimeRange()
    instant = as_datetime(value)
    if instant is None:
        return TimeRange()
    zone = schema.table.time.zone
    first_weekday = schema.cube.days_to_first_weekday
    following = next_start(instant, unit, first_weekday)
    at = instant if floor(instant, unit, first_weekday) == instant else following
    start = {"eq": at, "ge": at, "gt": following}.get(op)
    end = {"eq": following, "le": following, "lt": at}.get(op)
    return TimeRange(_bound_ms(start, zone, latest=False), _bound_ms(end, zone, latest=True))


def _is_time(column: str, schema: Schema) -> bool:
    return column in _UNITS and column in schema.cube.time_columns


def _bound_ms(local: datetime | None, zone: str, *, latest: bool) -> int | None:
    """Return a bound in ms; None, no bound, where the calendar ends: `day_start <= '9999-12-31'` is how many
    write *for ever*."""
    try:
        return None if local is None else to_utc_ms(local, zone, latest=latest)
    except OverflowError:
        return None


def instants(predicate: Predicate | None, column: str) -> TimeRange:
    """Return values of a date or timestamp column (UTC) that the predicate can be true for."""
    match predicate:
        case And(terms=terms):
            parts = [instants(term, column) for term in terms]
            starts = [part.start_ms for part in parts if part.start_ms is not None]
            ends = [part.end_ms for part in parts if part.end_ms is not None]
            return TimeRange(max(starts, default=None), min(ends, default=None))
        case Or(terms=terms) if terms:
            return _united([instants(term, column) for term in terms])
        case In(column=named, values=values, negated=False) if named == column:
            return _united([_compared_instant("eq", value) for value in values]) if values else _NOWHERE
        case Compare(column=named, op=op, value=value) if named == column:
            return _compared_instant(op, value)
    return TimeRange()


def _united(parts: list[TimeRange]) -> TimeRange:
    united = parts[0]
    for part in parts[1:]:
        united = united.union(part)
    return united


def _compared_instant(op: str, value: object) -> TimeRange:
    instant = as_datetime(value)
    if instant is None or op == "ne":
        return TimeRange()
    at_ms, rest_us = divmod(_us(instant), 1000)
    after_ms = at_ms + 1
    match op:
        case "eq":
            return TimeRange(at_ms, after_ms)
        case "ge" | "gt":
            return TimeRange(at_ms, None)
        case "lt":
            return TimeRange(None, at_ms if rest_us == 0 else after_ms)
        case "le":
            return TimeRange(None, after_ms)
    return TimeRange()


def _us(instant: datetime) -> int:
    difference = instant.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (difference.days * 86_400 + difference.seconds) * 1_000_000 + difference.microseconds
