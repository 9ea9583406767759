"""Functions that MySQL and the engine call alike but count differently: written so that MySQL's answer comes.

| function | MySQL | the engine |
|---|---|---|
| `DAYOFWEEK` | 1 = Sunday | 0 = Sunday |
| `WEEKDAY` | 0 = Monday | 0 = Sunday |
| `WEEK(d)`, `EXTRACT(WEEK …)` | weeks begin on Sunday, from 0 (mode 0) | ISO weeks |
| `TIMESTAMPDIFF` | whole units | boundaries passed |
| `TO_DAYS` | year 0 has 365 days | 366 |
| `MICROSECOND` | of the second | of the minute |
| `LENGTH`, `OCTET_LENGTH` | bytes | characters; binary only |
| `UPPER`, `LOWER` | of numbers too | of texts |
| `LEFT`, `RIGHT`, `SUBSTRING` | nothing before the beginning, from 0 | counted from the end |
| `SQRT`, `LN`, `LOG`, `ACOS`, `ASIN` | NULL outside of their domains | NaN, infinity |
| `EXP`, `POW`, `COT` | an error beyond the doubles | NaN, infinity |
| `LPAD` and `RPAD` to below 0, `LOCATE` from below 1 | NULL, 0 | '', as from 1 |
| `ASCII` | the first byte | the first character |
| `DATE_FORMAT(…, '%v')`, `'%u'`, `'%V'` | weeks by modes 3, 1, 2 | other weeks |
| `DATE_FORMAT(…, '%D')` | 1st, 2nd, … | an error |

`macros` has those that need more than another name, `mysql_functions` those that the engine has not. What it
does not know at all is an error there.
"""

from __future__ import annotations

import re
from itertools import pairwise

from sqlglot import exp

from rtolap.base.errors import UnsupportedSql
from rtolap.query.sql.rules.context import Context
from rtolap.query.sql.rules.conversions import CONVERSION_FUNCTIONS, to_base64
from rtolap.query.sql.rules.dates.calendar import (
    CALENDAR_FUNCTIONS,
    convert_zone,
    intervals,
    moment_of,
    parts,
    week,
    week_of,
    week_year_of,
)
from rtolap.query.sql.rules.macro_calls import macro
from rtolap.query.sql.rules.mysql_functions import macro_with, moved, time_literal
from rtolap.query.sql.rules.texts import (
    ANONYMOUS_TEXT_FUNCTIONS,
    TEXT_FUNCTIONS,
    Rewrite,
    macro_of,
    only_argument,
)

_WHOLE_UNITS = frozenset(("MICROSECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK"))
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_YEAR_ZERO, _EPOCH, _EPOCH_DAYS = "0000-01-01", "1970-01-01", 719_528
_MICROSECONDS = 1_000_000
_FORMAT_PIECES = re.compile(r"(%%|%[DWVX])")
_WEEK_LETTERS = {"%W": 1, "%V": 2}  # which the engine counts otherwise: by these modes


def functions(tree: exp.Expr, context: Context) -> exp.Expr:
    intervals(tree)
    for node in reversed(list(tree.find_all(exp.Func))):  # what stands inside first
        rewrite = _ANONYMOUS.get(str(node.this).lower()) if isinstance(node, exp.Anonymous) else None
        rewrite = rewrite or _KNOWN.get(type(node))
        if isinstance(node, exp.ConvertTimezone):
            rewritten = convert_zone(node, context)
        else:
            rewritten = None if rewrite is None else rewrite(node)
        if rewritten is not None:
            node.replace(rewritten)
    return tree


def _day_of_week(node: exp.Expr) -> exp.Expr:
    return exp.paren(exp.Add(this=node.copy(), expression=exp.Literal.number(1)), copy=False)


def _weekday(node: exp.Expr) -> exp.Expr:
    part = exp.Extract(this=exp.var("ISODOW"), expression=exp.TsOrDsToDate(this=only_argument(node)))
    return exp.paren(exp.Sub(this=part, expression=exp.Literal.number(1)), copy=False)


def _extract(node: exp.Expr) -> exp.Expr | None:
    match str(node.this.name).upper():
        case "WEEK":
            return week_of(node.expression, 0)
        case "MICROSECOND":
            return _of_the_second(node.copy())
    return parts(node, _single_part)


def _single_part(unit: str, moment: exp.Expr) -> exp.Expr:
    part = exp.Extract(this=exp.var(unit), expression=moment.copy())
    return _of_the_second(part) if unit == "MICROSECOND" else part


def _microsecond(node: exp.Expr) -> exp.Expr:
    at = exp.cast(only_argument(node), exp.DataType.Type.TIMESTAMP)
    return _of_the_second(exp.Extract(this=exp.var("MICROSECOND"), expression=at))


def _of_the_second(part: exp.Expr) -> exp.Expr:
    return exp.paren(exp.Mod(this=part, expression=exp.Literal.number(_MICROSECONDS)), copy=False)


def _difference(node: exp.Expr) -> exp.Expr:
    """Return TIMESTAMPDIFF(unit, start, end) as the engine computes it."""
    unit = str(node.args["unit"].name).upper()
    start = exp.cast(node.expression.copy(), exp.DataType.Type.TIMESTAMP)
    end = exp.cast(node.this.copy(), exp.DataType.Type.TIMESTAMP)
    if unit in _WHOLE_UNITS:
        return exp.func("DATESUB", exp.Literal.string(unit.lower()), start, end)
    if unit not in _MONTHS:
        raise UnsupportedSql(
            f"unsupported SQL: TIMESTAMPDIFF by {unit}",
            expected=f"one of {', '.join((*sorted(_WHOLE_UNITS), *_MONTHS))}",
        )
    months = exp.Anonymous(this="DATE_DIFF", expressions=[exp.Literal.string("month"), start, end])
    one, zero = exp.Literal.number(1), exp.Literal.number(0)
    too_far = (
        exp.case()
        .when(exp.and_(months.copy() > zero, _into_month(end) < _into_month(start)), one)
        .when(exp.and_(months.copy() < zero, _into_month(end) > _into_month(start)), exp.Neg(this=one.copy()))
        .else_(zero.copy())
    )
    whole = exp.paren(exp.Sub(this=months, expression=too_far), copy=False)
    return exp.paren(exp.IntDiv(this=whole, expression=exp.Literal.number(_MONTHS[unit])), copy=False)


def _into_month(at: exp.Expr) -> exp.Expr:
    """Return the time since the beginning of its month."""
    begin = exp.Anonymous(this="DATE_TRUNC", expressions=[exp.Literal.string("month"), at.copy()])
    return exp.paren(exp.Sub(this=at.copy(), expression=begin), copy=False)


def _days(node: exp.Expr) -> exp.Expr | None:
    """Return TO_DAYS, which the parser writes as (DATEDIFF(day, '0000-01-01') + 1)."""
    base = node.expression
    day = base.this if isinstance(base, exp.TsOrDsToDate) else base
    if not (isinstance(day, exp.Literal) and day.name == _YEAR_ZERO and isinstance(node.parent, exp.Add)):
        return None
    rewritten = node.copy()
    rewritten.expression.replace(exp.TsOrDsToDate(this=exp.Literal.string(_EPOCH)))
    node.parent.set("expression", exp.Literal.number(_EPOCH_DAYS))
    return rewritten


def _from_unixtime(node: exp.Expr) -> exp.Expr:
    at = macro("FROM_UNIXTIME", node.this)
    written = node.args.get("format")
    return at if written is None else _date_format(exp.TimeToStr(this=at, format=written.copy()))


def _date_format(node: exp.Expr) -> exp.Expr:
    """Return DATE_FORMAT as the engine computes it. The parser has written %u as %W, and left %V, %v, %X and
    %D."""
    pattern = node.args["format"]
    if not isinstance(pattern, exp.Literal):
        raise UnsupportedSql(
            "unsupported SQL: DATE_FORMAT with a format that is not written in the statement",
            expected="a text such as '%Y-%m-%d'",
        )
    pieces = [piece for piece in _FORMAT_PIECES.split(str(pattern.this)) if piece]
    _refuse_percents(pieces)
    texts: list[exp.Expr] = []
    run = ""
    for piece in pieces:
        own = _format_piece(piece, node.this)
        if own is None:
            run += piece.replace("%v", "%V")
            continue
        texts += [_formatted(node, run), own] if run else [own]
        run = ""
    if run or not texts:
        texts.append(_formatted(node, run))
    text = texts[0]
    for following in texts[1:]:
        text = exp.DPipe(this=text, expression=following)
    return text if len(texts) == 1 else exp.paren(text, copy=False)


def _format_piece(piece: str, moment: exp.Expr) -> exp.Expr | None:
    """Return the expression for a piece that the engine's formats lack; None for other pieces."""
    if piece == "%D":
        return macro("ORDINAL", exp.Day(this=moment.copy()))
    if piece in _WEEK_LETTERS:
        return macro("DIGITS", week_of(moment, _WEEK_LETTERS[piece]), exp.Literal.number(2))
    if piece == "%X":
        return macro("DIGITS", week_year_of(moment, _WEEK_LETTERS["%V"]), exp.Literal.number(4))
    return None


def _refuse_percents(pieces: list[str]) -> None:
    """Refuse %%: the parser reads the letter behind it as a field."""
    for piece, following in pairwise(pieces):
        if piece == "%%" and re.match(r"[A-CE-UWYZa-uw-z-]", following):
            raise UnsupportedSql(
                "unsupported SQL: DATE_FORMAT with %% before a letter", action="join texts with CONCAT"
            )


def _formatted(node: exp.Expr, pattern: str) -> exp.Expr:
    if not pattern:
        return exp.Literal.string("")  # the engine refuses an empty format
    return exp.TimeToStr(this=node.this.copy(), format=exp.Literal.string(pattern))


_KNOWN: dict[type[exp.Expr], Rewrite] = {
    **TEXT_FUNCTIONS,
    exp.Sqrt: macro_of("SQRT"),
    exp.Ln: macro_of("LN"),
    exp.Log: macro_of("LOG"),
    exp.Acos: macro_of("ACOS"),
    exp.Asin: macro_of("ASIN"),
    exp.Exp: macro_of("EXP"),
    exp.Pow: macro_of("POW"),
    exp.Cot: macro_of("COT"),
    exp.DayOfWeek: _day_of_week,
    exp.Week: week,
    exp.Timestamp: moment_of,
    exp.ToBase64: to_base64,
    exp.Extract: _extract,
    exp.TimestampDiff: _difference,
    exp.DateDiff: _days,
    exp.UnixToTime: _from_unixtime,
    exp.Time: macro_of("TIME", "this"),
    exp.CurrentTime: lambda node: macro("TIME_NOW"),
    exp.UtcTime: lambda node: macro("TIME_NOW"),
    exp.Cast: time_literal,
    exp.TimeToStr: _date_format,
}
_ANONYMOUS: dict[str, Rewrite] = {
    **ANONYMOUS_TEXT_FUNCTIONS,
    **CALENDAR_FUNCTIONS,
    **CONVERSION_FUNCTIONS,
    "weekday": _weekday,
    "microsecond": _microsecond,
    "adddate": lambda node: moved(node, exp.DateAdd),
    "subdate": lambda node: moved(node, exp.DateSub),
    "timediff": macro_with("TIMEDIFF", 2),
}
