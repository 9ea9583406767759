"""The range of event time in which a filter can be true: what segments need not be looked at.

Never too small: a condition that says nothing of time is unbounded.
"""

from __future__ import annotations

from rtolap.model.cube import TIME_UNITS, Schema, TimeUnit
from rtolap.model.predicate import And, Compare, In, Or, Predicate
from rtolap.query.plan import TimeRange
from rtolap.query.timeline import as_datetime, floor, to_utc_ms, unit_end_max

_UNITS: dict[str, TimeUnit] = {f"{unit}_start": unit for unit in TIME_UNITS}


def time_range(predicate: Predicate | None, schema: Schema) -> TimeRange:
    match predicate:
        case And(terms=terms):
            starts, ends = [], []
            for term in terms:
                part = time_range(term, schema)
                starts += [] if part.start_ms is None else [part.start_ms]
                ends += [] if part.end_ms is None else [part.end_ms]
            return TimeRange(max(starts, default=None), min(ends, default=None))
        case Or(terms=terms) if terms:
            found = time_range(terms[0], schema)
            for term in terms[1:]:
                found = found.union(time_range(term, schema))
            return found
        case In(column=column, values=values, negated=False) if values:
            found = _compared(column, "eq", values[0], schema)
            for value in values[1:]:
                found = found.union(_compared(column, "eq", value, schema))
            return found
        case Compare(column=column, op=op, value=value):
            return _compared(column, op, value, schema)
    return TimeRange()


def _compared(column: str, op: str, value: object, schema: Schema) -> TimeRange:
    unit = _UNITS.get(column)
    instant = as_datetime(value)
    if unit is None or instant is None or column not in schema.cube.time_columns or op == "ne":
        return TimeRange()
    zone = schema.table.time.zone
    # The unit begins at or after `instant` and lasts at most its longest length.
    start = to_utc_ms(instant, zone, latest=False) if op in ("eq", "gt", "ge") else None
    end = None
    if op in ("eq", "le", "lt"):
        aligned = op == "lt" and floor(instant, unit) == instant
        end = to_utc_ms(instant if aligned else unit_end_max(instant, unit), zone, latest=True)
    return TimeRange(start, end)
