"""Functions of MySQL's calendar that the engine has not: weeks by modes, periods, compound units, zones.

| written | becomes |
|---|---|
| `WEEK(d, mode)`, `YEARWEEK(d, mode)` | a count of days from the year's first week; see `macros.calendar` |
| `EXTRACT(DAY_MINUTE FROM t)` | a sum of single parts |
| `INTERVAL '1:30' HOUR_MINUTE` | one of microseconds, or of months |
| `TIMESTAMP(d, t)` | the moment `d` moved by the time `t` |
| `CONVERT_TZ(t, from, to)` | an offset moves, a name is the engine's; NULL for a zone that is not known |
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from rtolap.base.errors import UnsupportedSql
from rtolap.query.sql.rules.context import Context
from rtolap.query.sql.rules.dates.formats import str_to_date, time_format
from rtolap.query.sql.rules.macro_calls import macro
from rtolap.query.sql.rules.mysql_functions import exactly, macro_with
from rtolap.query.sql.rules.zones import converted

_PARTS = ("DAY", "HOUR", "MINUTE", "SECOND", "MICROSECOND")
_WEIGHTS = {"HOUR": 100, "MINUTE": 100, "SECOND": 100, "MICROSECOND": 1_000_000}  # of what stands before it
_UNIT_US = {"DAY": 86_400_000_000, "HOUR": 3_600_000_000, "MINUTE": 60_000_000, "SECOND": 1_000_000}
_YEAR_MONTH = "YEAR_MONTH"
COMPOUND_UNITS = {
    f"{first}_{last}": _PARTS[_PARTS.index(first) : _PARTS.index(last) + 1]
    for first in _PARTS
    for last in _PARTS[_PARTS.index(first) + 1 :]
}
_NUMBERS_MAX = 10**12  # of a part of an interval: beyond it every moment is out of range


def week(node: exp.Expr) -> exp.Expr:
    """Return WEEK(d [, mode]) as the engine computes it."""
    return week_of(node.this, node.args.get("mode") or exp.Literal.number(0))


def week_of(day: exp.Expr, mode: exp.Expr | int) -> exp.Expr:
    return macro("WEEK", _date(day), exp.Literal.number(mode) if isinstance(mode, int) else mode)


def week_year_of(day: exp.Expr, mode: int) -> exp.Expr:
    return macro("WEEK_YEAR", _date(day), exp.Literal.number(mode))


def _date(day: exp.Expr) -> exp.Expr:
    return day if isinstance(day, exp.TsOrDsToDate) else exp.TsOrDsToDate(this=day.copy())


def _yearweek(node: exp.Expr) -> exp.Expr:
    day, *mode = exactly(node, 1, 2)
    return macro("YEARWEEK", _date(day), mode[0] if mode else exp.Literal.number(0))


def _time_to_sec(node: exp.Expr) -> exp.Expr:
    return macro("TIME_TO_SEC", macro("TIME", *exactly(node, 1)))


def moment_of(node: exp.Expr) -> exp.Expr | None:
    """Return TIMESTAMP(d, t) as the engine computes it."""
    time = node.args.get("zone")
    return None if time is None else macro("PLUS_TIME", node.this, macro("TIME", time))


def parts(node: exp.Expr, part: Callable[[str, exp.Expr], exp.Expr]) -> exp.Expr | None:
    """Return EXTRACT of a compound unit, made of single ones that `part` gives."""
    unit = str(node.this.name).upper()
    units = ("YEAR", "MONTH") if unit == _YEAR_MONTH else COMPOUND_UNITS.get(unit)
    if units is None:
        return None
    total = part(units[0], node.expression)
    for each in units[1:]:
        weight = exp.Literal.number(_WEIGHTS.get(each, 100))
        total = exp.Add(
            this=exp.Mul(this=exp.paren(total, copy=False), expression=weight),
            expression=part(each, node.expression),
        )
    return exp.paren(total, copy=False)


def intervals(tree: exp.Expr) -> None:
    """Turn compound intervals, wherever one may stand, into simple ones."""
    for node in list(tree.find_all(exp.Interval, exp.DateAdd, exp.DateSub)):
        unit = node.args.get("unit")
        name = "" if unit is None else str(unit.name).upper()
        if name != _YEAR_MONTH and name not in COMPOUND_UNITS:
            continue
        field = "this" if isinstance(node, exp.Interval) else "expression"
        amount = _amount(node.args[field], name)
        counted = exp.Literal.string(str(amount)) if field == "this" else exp.Literal.number(abs(amount))
        if field == "expression" and amount < 0:
            counted = exp.Neg(this=counted)
        node.set(field, counted)
        node.set("unit", exp.var("MONTH" if name == _YEAR_MONTH else "MICROSECOND"))


def _amount(written: exp.Expr, unit: str) -> int:
    """Return months or microseconds. Missing parts are those on the left."""
    negative = isinstance(written, exp.Neg)
    literal = written.this if negative else written
    if not isinstance(literal, exp.Literal):
        raise UnsupportedSql(
            f"unsupported SQL: an interval of {unit} that is not written in the statement",
            expected="a text such as '1:30'",
        )
    text = str(literal.this)
    negative ^= text.lstrip().startswith("-")
    names = ("YEAR", "MONTH") if unit == _YEAR_MONTH else COMPOUND_UNITS[unit]
    found = re.findall(r"\d+", text)
    if len(found) > len(names) or any(len(each) > len(str(_NUMBERS_MAX)) for each in found):
        raise UnsupportedSql(
            f"unsupported SQL: INTERVAL {text[:80]!r} {unit}", expected=f"at most {len(names)} numbers"
        )
    if names[-1] == "MICROSECOND" and found and len(found[-1]) <= 6:
        found[-1] = found[-1].ljust(6, "0")  # behind the point: '1.5' is half a second
    numbers = [0] * (len(names) - len(found)) + [int(each) for each in found]
    if unit == _YEAR_MONTH:
        amount = numbers[0] * 12 + numbers[1]
    else:
        amount = sum(number * _UNIT_US.get(name, 1) for number, name in zip(numbers, names, strict=True))
    return -amount if negative else amount


def convert_zone(node: exp.ConvertTimezone, context: Context) -> exp.Expr | None:
    """Return CONVERT_TZ as the engine computes it; None where a zone is a column, or has no value yet: then
    the engine decides."""
    zones = []
    for field in ("source_tz", "target_tz"):
        zone = node.args.get(field)
        if zone is None or zone.find(exp.Column, exp.Query):
            return None
        try:
            zones.append(context.fold(zone))
        except LookupError:
            return None
    return converted(node.args["timestamp"], zones[0], zones[1])


CALENDAR_FUNCTIONS: dict[str, Callable[[exp.Expr], exp.Expr | None]] = {
    "makedate": macro_with("MAKEDATE", 2),
    "period_add": macro_with("PERIOD_ADD", 2),
    "period_diff": macro_with("PERIOD_DIFF", 2),
    "sec_to_time": macro_with("SEC_TO_TIME", 1),
    "str_to_date": str_to_date,
    "time_format": time_format,
    "time_to_sec": _time_to_sec,
    "yearweek": _yearweek,
}
