"""Functions that only MySQL has: written as macros, which the engine has, or as what it has already.

| function | note |
|---|---|
| `SUBSTRING_INDEX`, `FIELD`, `FIND_IN_SET` | case matters, as everywhere |
| `UNIX_TIMESTAMP` | as many digits behind the point as its text has; none of a DATE, six of other moments |
| `FROM_UNIXTIME` | NULL outside of 1970 to 2038, as is `UNIX_TIMESTAMP`; with a format `DATE_FORMAT` of it |
| `ADDDATE`, `SUBDATE` | by days or by an INTERVAL |
| `TIME`, `TIMEDIFF` | at most 838:59:59; `TIMEDIFF` of a time and a moment is NULL |

A TIME is the engine's INTERVAL without days, so that it reads as MySQL's: negative too, and of many hours.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from rtolap.base.errors import SqlSyntaxError, UnsupportedSql
from rtolap.query.sql.rules.comparisons import equals
from rtolap.query.sql.rules.context import Context
from rtolap.query.sql.rules.expression_types import Typed
from rtolap.query.sql.rules.macro_calls import macro
from rtolap.query.sql.rules.zones import ZONE, converted, unzoned
from rtolap.query.sql.types import DATE, STRING, SqlType

_T = exp.DType
_DATE_ONLY = re.compile(r"\s*\d+-\d+-\d+\s*")
_FRACTION = re.compile(r"\.(\d*)\s*\Z")
_MICROSECOND_DIGITS = 6
_FIELD_GROUPS = {"string": "text", "date": "moment", "datetime": "moment", "time": "time", "binary": "binary"}
_SECONDS_DIGITS = 10
_OF_NUMBERS = frozenset(
    f"mysql_{name}" for name in ("sqrt", "ln", "log", "acos", "asin", "exp", "pow", "cot", "sec_to_time")
)
_Rewrite = Callable[[exp.Expr, Typed, Context], exp.Expr | None]


def exactly(node: exp.Expr, *counts: int) -> list[exp.Expr]:
    """Return the function's arguments. Raises QueryError if they are not as many."""
    if len(node.expressions) not in counts:
        expected = " or ".join(map(str, counts))
        raise SqlSyntaxError(
            f"bad SQL: wrong number of arguments of {str(node.this).upper()}",
            expected=expected,
            found=len(node.expressions),
        )
    return list(node.expressions)


def macro_with(name: str, count: int) -> Callable[[exp.Expr], exp.Expr]:
    """Return what writes a function of so many arguments as a macro of them."""
    return lambda node: macro(name, *exactly(node, count))


def moved(node: exp.Expr, by: type[exp.Func]) -> exp.Expr:
    """Return ADDDATE or SUBDATE as the engine's function of an INTERVAL."""
    day, step = (argument.copy() for argument in exactly(node, 2))
    if day.is_string:
        day = exp.cast(day, _T.DATE if _DATE_ONLY.fullmatch(day.name) else _T.TIMESTAMP)
    if isinstance(step, exp.Interval):
        return by(this=day, expression=step.this, unit=step.args.get("unit"))
    return by(this=day, expression=exp.cast(step, _T.INT), unit=exp.var("DAY"))


def time_literal(node: exp.Expr) -> exp.Expr | None:
    """Return TIME '…' and CAST(… AS TIME) as the engine computes them."""
    assert isinstance(node, exp.Cast)
    return macro("TIME", node.this) if node.to.this is _T.TIME else None


def by_types(node: exp.Expr, typed: Typed, context: Context) -> exp.Expr | None:
    """Return a function's expression where the types of the operands decide it."""
    name = str(node.this).lower()
    if name in _OF_NUMBERS:
        for operand in list(node.expressions):
            if typed.of(operand) == STRING:
                operand.replace(macro("TEXT_NUMBER", operand))
        return None
    rewrite = _BY_TYPES.get(name)
    return None if rewrite is None else rewrite(node, typed, context)


def _field(node: exp.Expr, typed: Typed, context: Context) -> exp.Expr:
    if len(node.expressions) < 2:
        raise SqlSyntaxError(
            "bad SQL: wrong number of arguments of FIELD",
            expected="2 or more",
            found=len(node.expressions),
        )
    searched, *others = node.expressions
    kinds = {kind.kind for kind in map(typed.of, node.expressions) if kind is not None} - {"null"}
    groups = {_FIELD_GROUPS.get(kind, "number") for kind in kinds}
    if len(groups) > 1:
        raise UnsupportedSql(
            f"unsupported SQL: FIELD compares unlike things: {' and '.join(sorted(groups))}",
            expected="one of texts, numbers, moments, times",
            action="cast one of them",
        )
    if "hugeint" in kinds and len(kinds) > 1:  # MySQL looks at the bits: -1 is found as 2^64 - 1
        raise UnsupportedSql(
            "unsupported SQL: FIELD compares numbers of more than 63 bits with others",
            action="cast them to DECIMAL",
        )
    case = exp.case()
    for position, other in enumerate(others, start=1):
        case = case.when(equals(searched, other, typed, context), exp.Literal.number(position))
    return case.else_(exp.Literal.number(0))


def hexadecimal(node: exp.Expr, typed: Typed, context: Context) -> exp.Expr | None:
    """Return HEX: of a number rounded, of anything else its text. The engine would show a double as bytes."""
    value, kind = node.this, typed.of(node.this)
    if kind is None or kind.is_integer or kind.kind in ("string", "null", "binary"):
        return None
    if kind.is_number:
        whole: exp.Expr = exp.Round(this=value.copy())
        return exp.Hex(this=exp.cast(whole, _T.BIGINT))
    return exp.Hex(this=exp.cast(value.copy(), _T.BIGINT if kind.kind == "boolean" else _T.TEXT))


def _binary(node: exp.Expr, typed: Typed, context: Context) -> exp.Expr | None:
    """Return BIN of a text by the number that it begins with. The engine would show its bytes."""
    (value,) = exactly(node, 1)
    kind = typed.of(value)
    if kind is None or kind.is_integer or kind.kind == "null":
        return None
    if kind.kind not in ("string", "boolean"):
        raise UnsupportedSql(
            f"unsupported SQL: BIN of a {kind.kind}", expected="an integer, or a text of one"
        )
    empty = exp.Literal.string("")  # for which MySQL gives NULL
    text = exp.Nullif(this=value.copy(), expression=empty)
    number = macro("TEXT_INTEGER", text) if kind.kind == "string" else exp.cast(value.copy(), _T.BIGINT)
    return exp.Anonymous(this="BIN", expressions=[number])


def _unix_timestamp(node: exp.Expr, typed: Typed, context: Context) -> exp.Expr:
    arguments = exactly(node, 0, 1)
    if not arguments:
        return exp.cast(macro("UNIX_NOW"), _T.BIGINT)
    (at,) = arguments
    moment: exp.Expr = exp.cast(at.copy(), _T.TIMESTAMP)
    if node.args.get(ZONE) is not None:
        moment = converted(moment, node.args[ZONE].name, "UTC")
    micros = macro("UNIX_US", moment)
    digits = _fraction_digits(at, typed.of(at))
    if not digits:
        return exp.cast(exp.IntDiv(this=micros, expression=exp.Literal.number(1_000_000)), _T.BIGINT)
    exact = exp.cast(micros, exp.DataType.build("DECIMAL(18, 0)"))
    seconds = exp.Mul(this=exact, expression=exp.Literal.number("0.000001"))
    return exp.cast(seconds, exp.DataType.build(f"DECIMAL({_SECONDS_DIGITS + digits}, {digits})"))


def _fraction_digits(at: exp.Expr, kind: SqlType | None) -> int:
    if at.is_string:
        fraction = _FRACTION.search(at.name)
        return min(_MICROSECOND_DIGITS, len(fraction[1])) if fraction else 0
    at = unzoned(at)
    is_now = isinstance(at, exp.Cast) and isinstance(at.this, exp.CurrentTimestamp)
    return 0 if kind == DATE or is_now else _MICROSECOND_DIGITS


def _time(node: exp.Expr, typed: Typed, context: Context) -> exp.Expr | None:
    (value,) = exactly(node, 1)
    kind = typed.of(value)
    if kind is not None and kind.is_moment:
        return macro("TIME_OF", exp.cast(value.copy(), _T.TIMESTAMP))
    value.replace(exp.cast(value.copy(), _T.TEXT))
    return None


def _timediff(node: exp.Expr, typed: Typed, context: Context) -> exp.Expr | None:
    end, start = exactly(node, 2)
    kinds = [typed.of(end), typed.of(start)]
    if all(kind is not None and kind.is_moment for kind in kinds):
        if kinds[0] != kinds[1]:
            return exp.cast(exp.null(), _T.INTERVAL)
        return macro("BETWEEN", exp.cast(end.copy(), _T.TIMESTAMP), exp.cast(start.copy(), _T.TIMESTAMP))
    for each, kind in zip((end, start), kinds, strict=True):
        moment = exp.cast(each.copy(), _T.TIMESTAMP) if kind == DATE else each.copy()
        each.replace(exp.cast(moment, _T.TEXT))
    return None


_BY_TYPES: dict[str, _Rewrite] = {
    "bin": _binary,
    "field": _field,
    "unix_timestamp": _unix_timestamp,
    "mysql_time": _time,
    "mysql_timediff": _timediff,
}
