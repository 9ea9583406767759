"""The rules for operands that are no text where text is wanted, and for the patterns of LIKE."""

from __future__ import annotations

from sqlglot import exp

from rtolap.base.errors import UnsupportedSql
from rtolap.query.sql.dialect import user_sql
from rtolap.query.sql.rules.context import Context
from rtolap.query.sql.rules.expression_types import Typed
from rtolap.query.sql.types import QUOTIENT, SqlType

_ALL = (exp.Concat, exp.ConcatWs)
_BOTH = (exp.DPipe, exp.Like, exp.RegexpLike)
_FIRST = (exp.Upper, exp.Lower, exp.Trim, exp.Length, exp.Reverse, exp.StrPosition)
_MACROS = {  # how many of their arguments are texts, which stand first
    **{
        f"mysql_{name}": 1
        for name in ("left", "right", "from", "substring", "lpad", "rpad", "repeat", "ascii")
    },
    **{f"mysql_{name}": 2 for name in ("substring_index", "find_in_set")},
}


def texts(node: exp.Expr, typed: Typed) -> None:
    """Numbers, booleans and dates among the operands become the text that MySQL shows of them."""
    for operand in _operands(node):
        kind = typed.of(operand)
        if kind is not None and kind.kind not in ("string", "null", "binary"):
            text = cast_text(operand, kind)
            operand.replace(text)
            typed.note(text, SqlType("string"))


def cast_text(node: exp.Expr, kind: SqlType) -> exp.Expr:
    value = node.copy()
    if kind == QUOTIENT:
        raise UnsupportedSql(
            f"unsupported SQL: the text of the quotient {user_sql(node)[:200]}",
            expected="as many digits as are wanted",
            action="use CAST(… AS DECIMAL(p, s)) first",
        )
    if kind.kind == "double":
        return exp.Anonymous(this="MYSQL_NUMBER_TEXT", expressions=[value])
    if kind.kind == "boolean":
        value = exp.cast(value, exp.DataType.Type.INT)
    return exp.cast(value, exp.DataType.Type.TEXT)


def like(node: exp.Expr, typed: Typed, context: Context) -> exp.Expr | None:
    """A backslash escapes, unless ESCAPE says otherwise."""
    if isinstance(node.parent, exp.Escape):
        return None
    pattern = node.expression
    if typed.of(pattern) is not None and not pattern.find(exp.Column, exp.Query):
        value = context.fold(pattern)
        if value is None or (isinstance(value, str) and "\\" not in value):
            return None
    return exp.paren(exp.Escape(this=node.copy(), expression=exp.Literal.string("\\")), copy=False)


def _operands(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, _ALL):
        return list(node.expressions)
    if isinstance(node, _BOTH):
        return [node.this, node.expression]
    if isinstance(node, exp.Replace):
        return [node.this, node.expression, node.args["replacement"]]
    if isinstance(node, _FIRST):
        return [node.this]
    if isinstance(node, exp.Anonymous):
        return list(node.expressions[: _MACROS.get(str(node.this).lower(), 0)])
    return []
