"""Operands as numbers: texts and booleans beside numbers, and decimals of one scale."""

from __future__ import annotations

from sqlglot import exp

from rtolap.query.sql.rules.expression_types import Typed
from rtolap.query.sql.rules.macro_calls import macro
from rtolap.query.sql.types import DECIMAL_DIGITS, SqlType

_T = exp.DType
Found = exp.Expr | None


def as_number(operand: exp.Expr, typed: Typed) -> SqlType | None:
    """Turn an operand into a number, text into a double and a boolean into an integer. Return its type."""
    kind = typed.of(operand)
    if kind is None or kind.kind not in ("string", "boolean"):
        return kind
    number_type = SqlType("double" if kind.kind == "string" else "bigint")
    number = macro("TEXT_NUMBER", operand) if kind.kind == "string" else exp.cast(operand.copy(), _T.BIGINT)
    operand.replace(number)
    typed.note(number, number_type)
    return number_type


def as_decimal(value: exp.Expr, scale: int) -> exp.Expr:
    """Return a cast to DECIMAL. `exp.cast` would leave a CAST to another DECIMAL as it is."""
    return exp.Cast(this=value, to=exp.DataType.build(f"DECIMAL({DECIMAL_DIGITS}, {scale})"))
