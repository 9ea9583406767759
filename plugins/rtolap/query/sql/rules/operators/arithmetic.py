"""Arithmetic: widths of integers, division by zero, remainders, and functions of numbers."""

from __future__ import annotations

from sqlglot import exp

from rtolap.base.errors import UnsupportedSql
from rtolap.query.sql.dialect import rewritten_sql
from rtolap.query.sql.rules.context import Context
from rtolap.query.sql.rules.expression_types import Typed
from rtolap.query.sql.rules.macro_calls import macro
from rtolap.query.sql.rules.moments import moved
from rtolap.query.sql.rules.operators.numbers import Found, as_decimal, as_number
from rtolap.query.sql.rules.totals import TOTAL
from rtolap.query.sql.types import QUOTIENT, STRING, SqlType

_T = exp.DType
_DOUBLE_DIGITS = 15  # behind the point of a double that DIV takes


def arithmetic(node: exp.Expr, typed: Typed, context: Context) -> Found:
    """Widen integers that the engine would compute with 32 bits, and have a division by zero give NULL."""
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.is_string:
        return None
    operands = [node.this] if isinstance(node, exp.Unary | exp.Abs) else [node.this, node.expression]
    if any(isinstance(each, exp.Interval) for each in operands):
        return moved(node, typed, context)
    _refuse_moments(node, operands, typed)
    kinds = [as_number(each, typed) for each in operands]
    if node.meta.get(TOTAL) or any(_is_total(each) for each in operands):
        narrow = all(kind is not None and kind.kind in ("int", "bigint", "boolean") for kind in kinds)
        wide = _T.INT128 if narrow else None
    else:
        wide = _T.BIGINT if all(kind is None or kind.kind in ("int", "null") for kind in kinds) else None
        wide = wide if kinds[0] is not None and kinds[0].kind == "int" else None
    if wide is not None and not isinstance(node, exp.Div):
        node.this.replace(exp.cast(node.this.copy(), wide))
        typed.note(node.this, SqlType("hugeint" if wide is _T.INT128 else "bigint"))
    if isinstance(node, exp.IntDiv | exp.Mod):
        return _divided(node, kinds, typed)
    return None


def _divided(node: exp.Expr, kinds: list[SqlType | None], typed: Typed) -> Found:
    whole = all(kind is not None and (kind.is_integer or kind.kind in ("boolean", "null")) for kind in kinds)
    divisor = node.expression.unnest()
    is_safe = isinstance(divisor, exp.Literal) and str(divisor.this).strip("0.") != ""
    if isinstance(node, exp.Mod):
        _same_scale(node, kinds, typed)
        name = None if is_safe else "MYSQL_MODULO"
    elif whole:
        name = None if is_safe else "MYSQL_DIVIDED"
    else:
        return _whole_part(node, kinds)
    if name is None:
        return None
    return exp.Anonymous(this=name, expressions=[node.this.unnest().copy(), node.expression.unnest().copy()])


def _same_scale(node: exp.Expr, kinds: list[SqlType | None], typed: Typed) -> None:
    """Cast decimals to one scale. Decimals of different scales that need more than 38 digits together would
    become doubles."""
    known = [kind for kind in kinds if kind is not None and kind.is_exact]
    if len(known) == len(kinds) and any(kind.kind == "decimal" for kind in known):
        scale = max(kind.scale for kind in known)
        for operand in (node.this, node.expression):
            scaled = as_decimal(operand.copy(), scale)
            operand.replace(scaled)
            typed.note(scaled, SqlType("decimal", scale))


def _whole_part(node: exp.Expr, kinds: list[SqlType | None]) -> exp.Expr:
    """Return DIV of fractions, exactly: of the decimal that a double reads as, not of its bits."""
    scale, operands = 0, []
    for operand, kind in zip((node.this, node.expression), kinds, strict=True):
        if kind is None and operand.find(exp.Parameter):  # which is bound later
            operands.append(operand.unnest().copy())
            continue
        if kind is None or kind == QUOTIENT or not (kind.is_number or kind.kind in ("boolean", "null")):
            raise UnsupportedSql(
                f"unsupported SQL: {rewritten_sql(node)[:200]}",
                expected="DIV of integers, decimals and doubles",
            )
        if kind.kind == "double":
            scale = _DOUBLE_DIGITS
            operands.append(macro("EXACT", operand.unnest()))
        else:
            scale = max(scale, kind.scale)
            operands.append(operand.unnest().copy())
    return macro("WHOLE_PART", *(as_decimal(each, scale) for each in operands))


def whole_already(node: exp.Expr, typed: Typed, context: Context) -> Found:
    """Return FLOOR and CEIL of an integer as the integer; the engine would make a double of it."""
    kind = as_number(node.this, typed)
    return exp.paren(node.this.copy()) if kind is not None and kind.is_integer else None


def _is_total(operand: exp.Expr) -> bool:
    return bool(operand.unnest().meta.get(TOTAL))


def _refuse_moments(node: exp.Expr, operands: list[exp.Expr], typed: Typed) -> None:
    kinds = [typed.of(each) for each in operands]
    if any(kind is not None and kind.is_moment for kind in kinds) and all(
        kind is not None and (kind.is_moment or kind.is_number or kind.kind in ("boolean", "string"))
        for kind in kinds
    ):
        raise UnsupportedSql(
            f"unsupported SQL: {rewritten_sql(node)[:200]} counts with a date as with a number",
            expected="an INTERVAL, DATEDIFF or TIMESTAMPDIFF",
        )


def of_number(node: exp.Expr, typed: Typed, context: Context) -> Found:
    """Have functions of numbers read a text as a number."""
    for operand in (node.this, node.args.get("expression")):
        if isinstance(operand, exp.Expr) and typed.of(operand) == STRING:
            as_number(operand, typed)
    return None


def rounded(node: exp.Expr, typed: Typed, context: Context) -> Found:
    """Round a double half to even, as MySQL does."""
    kind, written = as_number(node.this, typed), node.args.get("decimals")
    if written is not None and not isinstance(written.unnest(), exp.Literal | exp.Neg):
        written.replace(exp.cast(written.copy(), _T.INT))
    if isinstance(node, exp.Trunc) or kind is None or kind.kind != "double" or kind == QUOTIENT:
        return None
    digits = node.args.get("decimals") or exp.Literal.number(0)
    return macro("ROUND_EVEN", node.this, digits)
