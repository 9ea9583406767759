"""Aggregate functions of rows: of texts, of booleans, of several columns, and joined texts."""

from __future__ import annotations

from sqlglot import exp

from rtolap.base.errors import UnsupportedSql
from rtolap.query.sql.dialect import rewritten_sql
from rtolap.query.sql.rules.context import Context
from rtolap.query.sql.rules.expression_types import Typed
from rtolap.query.sql.rules.macro_calls import macro
from rtolap.query.sql.rules.operators.numbers import Found, as_number
from rtolap.query.sql.rules.texts import cast_text
from rtolap.query.sql.types import STRING


def over_rows(node: exp.Expr, typed: Typed, context: Context) -> Found:
    """Let SUM and AVG take booleans and texts as numbers. Moments, which the engine would average as such,
    are refused."""
    if not isinstance(node.this, exp.Distinct):
        kind = as_number(node.this, typed)
        if kind is not None and (kind.is_moment or kind.kind in ("time", "binary")):
            raise UnsupportedSql(
                f"unsupported SQL: {rewritten_sql(node)[:200]} counts with a {kind.kind} as with a number",
                expected="numbers",
                action="take MIN or MAX, or UNIX_TIMESTAMP of it",
            )
    return None


def count_rows(node: exp.Expr, typed: Typed, context: Context) -> Found:
    """Return COUNT(DISTINCT a, b), which counts rows without a NULL."""
    distinct = node.this
    if not isinstance(distinct, exp.Distinct) or len(distinct.expressions) < 2:
        return None
    lacks = exp.or_(
        *(exp.Is(this=each.copy(), expression=exp.null()) for each in distinct.expressions), copy=False
    )
    row = exp.Anonymous(this="ROW", expressions=[each.copy() for each in distinct.expressions])
    whole = exp.case().when(lacks, exp.null()).else_(row)
    return exp.Count(this=exp.Distinct(expressions=[whole]))


def group_concat(node: exp.Expr, typed: Typed, context: Context) -> Found:
    """Return GROUP_CONCAT of DISTINCT texts in the order of something else, which the engine refuses: of each
    text its first."""
    order = node.this
    distinct = order.this if isinstance(order, exp.Order) else None
    if not isinstance(distinct, exp.Distinct) or all(
        each.this in distinct.expressions for each in order.expressions
    ):
        return None
    directions = {bool(each.args.get("desc")) for each in order.expressions}
    if len(distinct.expressions) != 1 or len(directions) != 1:
        raise UnsupportedSql(
            f"unsupported SQL: {rewritten_sql(node)[:200]}",
            expected="one expression behind DISTINCT, and one direction of ORDER BY",
        )
    (value,) = distinct.expressions
    kind = typed.of(value)
    text = value.copy() if kind is None or kind == STRING else cast_text(value, kind)
    keys = [
        part for each in order.expressions for part in (each.this.is_(exp.null()).not_(), each.this.copy())
    ]
    pair = exp.Anonymous(
        this="ROW", expressions=[exp.Anonymous(this="ROW", expressions=keys), macro("TEXT", text)]
    )
    pairs = exp.Anonymous(this="LIST", expressions=[exp.Distinct(expressions=[pair])])
    separator = node.args.get("separator") or exp.Literal.string(",")
    return macro("JOINED", pairs, separator, exp.Literal.string("DESC" if directions == {True} else "ASC"))
