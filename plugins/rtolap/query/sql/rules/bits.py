"""Operations on bits: those of unsigned numbers of 64 bits, as MySQL's, whatever the operands are."""

from __future__ import annotations

from sqlglot import exp

from rtolap.base.errors import UnsupportedSql
from rtolap.query.sql.dialect import rewritten_sql
from rtolap.query.sql.rules.context import Context
from rtolap.query.sql.rules.expression_types import Typed
from rtolap.query.sql.rules.macro_calls import macro
from rtolap.query.sql.types import HUGEINT

_T = exp.DType
_SHIFTS: dict[type[exp.Expr], str] = {
    exp.BitwiseLeftShift: "LEFT_SHIFT",
    exp.BitwiseRightShift: "RIGHT_SHIFT",
}
# What is answered of no rows.
_OF_NO_ROWS: dict[type[exp.Expr], int] = {
    exp.BitwiseAndAgg: 2**64 - 1,
    exp.BitwiseOrAgg: 0,
    exp.BitwiseXorAgg: 0,
}


def bits(node: exp.Expr, typed: Typed, context: Context) -> exp.Expr | None:
    operands = [node.this] if isinstance(node, exp.BitwiseNot) else [node.this, node.expression]
    for operand in operands:
        number = _unsigned(operand, typed, node)
        operand.replace(number)
        typed.note(number, HUGEINT)
    shift = _SHIFTS.get(type(node))
    return None if shift is None else macro(shift, node.this, node.expression)


def bit_totals(node: exp.Expr, typed: Typed, context: Context) -> exp.Expr | None:
    """Return BIT_AND, BIT_OR and BIT_XOR as the engine computes them."""
    if isinstance(node.parent, exp.Window):
        raise UnsupportedSql(f"unsupported SQL: {rewritten_sql(node)[:200]} over a window")
    if not isinstance(node.this, exp.Distinct):
        node.this.replace(_unsigned(node.this, typed, node))
    return None if isinstance(node.parent, exp.Filter) else _or_of_no_rows(node, type(node))


def filtered_bits(node: exp.Expr, typed: Typed, context: Context) -> exp.Expr | None:
    """Return BIT_AND, BIT_OR and BIT_XOR with FILTER (WHERE …) as the engine computes them."""
    return _or_of_no_rows(node, type(node.this)) if type(node.this) in _OF_NO_ROWS else None


def _or_of_no_rows(node: exp.Expr, kind: type[exp.Expr]) -> exp.Expr:
    default = exp.cast(exp.Literal.number(_OF_NO_ROWS[kind]), _T.UBIGINT)
    return exp.func("COALESCE", node.copy(), default)


def _unsigned(operand: exp.Expr, typed: Typed, node: exp.Expr) -> exp.Expr:
    kind = typed.of(operand)
    whole = operand.copy()
    if kind is None or kind.is_integer:
        return macro("BITS", whole)
    match kind.kind:
        case "boolean" | "null":
            return macro("BITS", exp.cast(whole, _T.BIGINT))
        case "decimal":
            return macro("BITS", macro("WHOLE", exp.Round(this=whole)))
        case "double":
            return macro("BITS", macro("WHOLE", whole))
        case "string":
            return macro("BITS", macro("WHOLE", macro("TEXT_NUMBER", whole)))
    raise UnsupportedSql(
        f"unsupported SQL: the bits of {rewritten_sql(operand)[:100]}",
        expected="a number",
        found=f"a {kind.kind}",
    )
