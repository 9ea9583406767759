"""Dates and moments moved by an INTERVAL, as MySQL moves them.

| written | MySQL | the engine |
|---|---|---|
| a result beyond the year 9999 | NULL | a later year, or an error |
| `INTERVAL 1.5 DAY` of a number that is computed | rounded | an error, or cut off |
| `INTERVAL 1.5 SECOND` | exact | exact |
| a date moved by days | a date | a timestamp |
"""

from __future__ import annotations

import re

from sqlglot import exp

from rtolap.base.errors import UnsupportedSql
from rtolap.query.sql.dialect import rewritten_sql
from rtolap.query.sql.rules.context import Context
from rtolap.query.sql.rules.expression_types import Typed, is_days
from rtolap.query.sql.rules.macro_calls import macro
from rtolap.query.sql.types import DATE, QUOTIENT, SqlType

_T = exp.DType
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_DAYS = {"DAY": 1, "WEEK": 7}
_MICROSECONDS = {"MICROSECOND": 1, "SECOND": 1_000_000, "MINUTE": 60_000_000, "HOUR": 3_600_000_000}
_DATE_ONLY = re.compile(r"\s*\d+-\d+-\d+\s*")
_NUMBER = re.compile(r"\s*([-+]?\d+)(?:\.(\d*))?\s*")


def moved(node: exp.Expr, typed: Typed, context: Context) -> exp.Expr | None:
    """Return a moved moment. `node` is a DATE_ADD, DATE_SUB, TIMESTAMPADD, or a sum with an INTERVAL."""
    moment, step, unit = _parts(node)
    if isinstance(unit, exp.IntervalSpan) or unit is None:
        raise UnsupportedSql(
            f"unsupported SQL: {rewritten_sql(node)[:200]}", expected="an INTERVAL of one unit"
        )
    name = str(unit.name).upper().removesuffix("S")
    kind = typed.of(moment)
    if kind is not None and kind.kind == "time":
        return None
    if kind is not None and not kind.is_moment and kind.kind not in ("string", "null"):
        raise UnsupportedSql(
            f"unsupported SQL: {rewritten_sql(node)[:200]} moves what is no date",
            expected="a DATE, a DATETIME or a text of one",
            action="cast it",
        )
    is_subtracted = isinstance(node, exp.DateSub | exp.Sub)
    amount, factor = _amount(step, name, typed, node)
    if factor is None:
        raise UnsupportedSql(
            f"unsupported SQL: INTERVAL by {name}", expected=", ".join((*_MICROSECONDS, *_DAYS, *_MONTHS))
        )
    function = "MOVED_MONTHS" if name in _MONTHS else "MOVED_DAYS" if name in _DAYS else "MOVED_US"
    signed = exp.Literal.number(factor)
    result = macro(
        function, _moment(moment, kind, unit), amount, exp.Neg(this=signed) if is_subtracted else signed
    )
    return exp.cast(result, _T.DATE) if _is_date(moment, kind) and is_days(unit) else result


def _parts(node: exp.Expr) -> tuple[exp.Expr, exp.Expr, exp.Expr | None]:
    """Return the moment, the number of units, and the unit."""
    if isinstance(node, exp.Add | exp.Sub):
        interval, moment = node.expression, node.this
        if not isinstance(interval, exp.Interval):
            interval, moment = node.this, node.expression
        return moment, interval.this, interval.args.get("unit")
    return node.this, node.expression, node.args.get("unit")


def _moment(moment: exp.Expr, kind: SqlType | None, unit: exp.Expr) -> exp.Expr:
    if kind is None:
        return moment.copy()
    if kind.kind == "string" and _is_date(moment, kind) and is_days(unit):
        return exp.cast(moment.copy(), _T.DATE)
    return moment.copy() if kind == DATE else exp.cast(moment.copy(), _T.TIMESTAMP)


def _is_date(moment: exp.Expr, kind: SqlType | None) -> bool:
    return kind == DATE or (moment.is_string and _DATE_ONLY.fullmatch(moment.name) is not None)


def _amount(step: exp.Expr, unit: str, typed: Typed, node: exp.Expr) -> tuple[exp.Expr, int | None]:
    """Return the number of units (microseconds for fractions of seconds), and how many smaller ones each
    has.
    """
    factor = {**_MONTHS, **_DAYS, **_MICROSECONDS}.get(unit)
    written, is_negative = step.unnest(), False
    if isinstance(written, exp.Neg) and isinstance(written.this.unnest(), exp.Literal):
        written, is_negative = written.this.unnest(), True
    if isinstance(written, exp.Literal):
        return _written_amount(str(written.this), is_negative, unit, factor, node)
    kind = typed.of(step)
    if kind is None or kind.is_integer or kind.kind == "null":
        return exp.cast(step.copy(), _T.INT128), factor
    if kind.kind == "boolean":
        return exp.cast(step.copy(), _T.BIGINT), factor
    if kind.kind == "string":
        if unit == "SECOND":
            raise _refused(node, "text that is no constant")
        return macro("TEXT_INTEGER", step), factor
    if kind.is_moment or kind.kind in ("time", "binary"):
        raise _refused(node, "what is no number")
    if unit == "SECOND":
        if kind.kind == "double":
            raise _refused(node, "a double")
        micros = exp.Mul(this=exp.paren(step.copy()), expression=exp.Literal.number(_MICROSECONDS["SECOND"]))
        return exp.cast(exp.Trunc(this=micros), _T.INT128), 1
    if kind.kind == "double" and kind != QUOTIENT:
        rounded: exp.Expr = exp.Anonymous(this="ROUND_EVEN", expressions=[step.copy(), exp.Literal.number(0)])
    else:
        rounded = exp.Round(this=step.copy())
    return exp.cast(rounded, _T.INT128), factor


def _written_amount(
    text: str, is_negative: bool, unit: str, factor: int | None, node: exp.Expr
) -> tuple[exp.Expr, int | None]:
    """Return an amount that stands in the text. The parser writes a number as it writes a text, but MySQL
    rounds a number and cuts off a text."""
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise _refused(node, repr(text[:100]))
    fraction = found[2] or ""
    if unit == "SECOND" and fraction.strip("0"):
        if len(fraction) > 6:
            raise _refused(node, "more than six digits of a second")
        whole, factor = int(found[1] + fraction.ljust(6, "0")), 1
    elif fraction[:1] > "4":
        raise _refused(node, f"{text.strip()}, of which a number is rounded and a text is cut off")
    else:
        whole = int(found[1])
    whole = -whole if is_negative else whole
    literal: exp.Expr = exp.Literal.number(abs(whole))
    literal = exp.Neg(this=literal) if whole < 0 else literal
    return exp.cast(literal, _T.INT128), factor


def _refused(node: exp.Expr, found: str) -> UnsupportedSql:
    return UnsupportedSql(
        f"unsupported SQL: INTERVAL {rewritten_sql(_parts(node)[1])[:100]} {_parts(node)[2]}",
        expected="an INTERVAL of a whole number of units",
        found=found,
        action="write ROUND(…), or a smaller unit",
    )
