"""Finds the partitions in which a filter can be true. Pure, and never too few."""

from __future__ import annotations

from datetime import UTC, datetime

from rtolap.model.predicate import And, Compare, In, Or, Predicate
from rtolap.query.plan import TimeRange
from rtolap.query.sql.timeline import as_datetime

_NOWHERE = TimeRange(0, 0)


def instants(predicate: Predicate | None, column: str) -> TimeRange:
    """Values of a date or timestamp column (UTC) that the predicate can be true for."""
    match predicate:
        case And(terms=terms):
            parts = [instants(term, column) for term in terms]
            starts = [part.start_ms for part in parts if part.start_ms is not None]
            ends = [part.end_ms for part in parts if part.end_ms is not None]
            return TimeRange(max(starts, default=None), min(ends, default=None))
        case Or(terms=terms) if terms:
            return _united([instants(term, column) for term in terms])
        case In(column=named, values=values, negated=False) if named == column:
            return _united([_compared("eq", value) for value in values]) if values else _NOWHERE
        case Compare(column=named, op=op, value=value) if named == column:
            return _compared(op, value)
    return TimeRange()


def _united(parts: list[TimeRange]) -> TimeRange:
    united = parts[0]
    for part in parts[1:]:
        united = united.union(part)
    return united


def _compared(op: str, value: object) -> TimeRange:
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
