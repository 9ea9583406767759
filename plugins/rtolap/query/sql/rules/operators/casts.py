"""Casts, and texts that are read as moments."""

from __future__ import annotations

from sqlglot import exp

from rtolap.base.errors import UnsupportedSql
from rtolap.query.sql.rules.context import Context
from rtolap.query.sql.rules.expression_types import Typed
from rtolap.query.sql.rules.macro_calls import macro
from rtolap.query.sql.rules.operators.numbers import Found
from rtolap.query.sql.rules.texts import cast_text
from rtolap.query.sql.types import SqlType

_T = exp.DType
_CLOCK = frozenset(("HOUR", "MINUTE", "SECOND"))


def cast(node: exp.Expr, typed: Typed, context: Context) -> Found:
    """Cast as MySQL does: texts by the number they begin with, and numbers that do not fit to the largest."""
    assert isinstance(node, exp.Cast)
    if node.to.this in (_T.DATETIME, _T.TIMESTAMP) and node.to.expressions:
        if node.to.expressions[0].name != "6":
            raise UnsupportedSql(
                f"unsupported SQL: a DATETIME of {node.to.expressions[0].name} digits",
                expected="DATETIME or DATETIME(6), which are one here",
            )
        return exp.cast(node.this.copy(), _T.TIMESTAMP)
    given, target = typed.of(node.this), typed.infer(node)
    if target is None or (given is None and target.kind != "string"):
        return None
    if target.kind == "string":
        length = node.to.expressions
        whole = exp.cast(node.this.copy(), _T.TEXT) if given is None else cast_text(node.this, given)
        if length:
            return exp.Anonymous(this="MYSQL_LEFT", expressions=[whole, length[0].this.copy()])
        return whole
    if given is None:
        return None
    if target.kind == "decimal":
        return _to_decimal(node, given)
    if target.is_integer and given.kind == "string":
        number = exp.Anonymous(this="MYSQL_TEXT_INTEGER", expressions=[node.this.copy()])
        return number if node.to.this is _T.BIGINT else exp.cast(number, node.to.copy())
    return None


def _to_decimal(node: exp.Cast, given: SqlType) -> Found:
    """Cast to a decimal.

    A value that does not fit becomes the type's largest number, with the value's sign.
    """
    if not (given.is_number or given.kind in ("boolean", "string")) or _fits(node):
        return None
    digits = [int(part.name) for part in node.to.expressions] or [10]
    scale = digits[1] if len(digits) > 1 else 0
    nines = "9" * digits[0]
    most = f"{nines[: digits[0] - scale] or '0'}.{nines[digits[0] - scale :]}".rstrip(".")
    number = exp.cast(node.this.copy(), _T.BIGINT) if given.kind == "boolean" else node.this.copy()
    read = number
    if given.kind == "string":
        number, read = macro("TEXT_NUMBER", number), macro("NUMBER_PREFIX", number)
    tried = exp.TryCast(this=read.copy(), to=node.to.copy())
    return macro("CLAMPED", number, tried, exp.cast(exp.Literal.number(most), node.to.copy()))


def _fits(node: exp.Cast) -> bool:
    literal = node.this.this if isinstance(node.this, exp.Neg) else node.this
    digits = [int(part.name) for part in node.to.expressions] or [10]
    whole = (
        str(literal.this).partition(".")[0]
        if isinstance(literal, exp.Literal) and not literal.is_string
        else ""
    )
    return whole.isdigit() and len(whole) < digits[0] - (digits[1] if len(digits) > 1 else 0)


def part_of_moment(node: exp.Expr, typed: Typed, context: Context) -> Found:
    """Let HOUR('…') and its like read a text as a moment."""
    moment = node.expression if isinstance(node, exp.Extract) else node.this
    kind = typed.of(moment)
    if kind is not None and kind.kind == "null":
        moment.replace(exp.cast(moment.copy(), _T.TIMESTAMP))
    if kind is not None and kind.kind == "string":
        unit = str(node.this.name).upper() if isinstance(node, exp.Extract) else node.key.upper()
        clock = macro("CLOCK_TEXT", moment) if unit in _CLOCK else moment.copy()
        moment.replace(exp.cast(clock, _T.TIMESTAMP))
    return None
