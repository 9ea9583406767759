"""Types of expressions, as far as they decide what MySQL would answer.

`int` is what the engine computes in 32 bits or fewer, `hugeint` what it holds in 128. None stands for a type
that is not known: whatever depends on it is then left to the engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Literal

from sqlglot import exp

from rtolap.column_types import ColumnType

SqlKind = Literal[
    "null",
    "boolean",
    "int",
    "bigint",
    "hugeint",
    "decimal",
    "double",
    "string",
    "date",
    "datetime",
    "time",
    "binary",
]
DECIMAL_DIGITS = 38
_INTEGERS: tuple[SqlKind, ...] = ("int", "bigint", "hugeint")
_INT_MAX, _BIGINT_MAX = 2**31, 2**63


@dataclass(frozen=True)
class SqlType:
    """The type of an expression in MySQL.

    Attributes:
        scale: digits after the point, of decimals and of QUOTIENT.
        shown: digits that MySQL shows of a rounded double, -1 where they are unknown; None: all of them.
    """

    kind: SqlKind
    scale: int = 0
    shown: int | None = None

    @property
    def is_integer(self) -> bool:
        return self.kind in _INTEGERS

    @property
    def is_exact(self) -> bool:
        return self.is_integer or self.kind == "decimal"

    @property
    def is_number(self) -> bool:
        return self.is_exact or self.kind == "double"

    @property
    def is_moment(self) -> bool:
        return self.kind in ("date", "datetime")


NULL, BOOLEAN, STRING = SqlType("null"), SqlType("boolean"), SqlType("string")
INT, BIGINT, HUGEINT, DOUBLE = SqlType("int"), SqlType("bigint"), SqlType("hugeint"), SqlType("double")
ROUNDED = SqlType("double", shown=-1)
QUOTIENT = SqlType("double", 4)  # of exact numbers: a decimal in MySQL, with four digits more
DATE, DATETIME, TIME = SqlType("date"), SqlType("datetime"), SqlType("time")
BINARY = SqlType("binary")

_T = exp.DType
_DECLARED: dict[exp.DType, SqlType] = {
    **dict.fromkeys((_T.TINYINT, _T.SMALLINT, _T.MEDIUMINT, _T.INT), INT),
    **dict.fromkeys((_T.UTINYINT, _T.USMALLINT), INT),
    **dict.fromkeys((_T.BIGINT, _T.UINT), BIGINT),
    **dict.fromkeys((_T.INT128, _T.UBIGINT), HUGEINT),
    **dict.fromkeys((_T.FLOAT, _T.DOUBLE), DOUBLE),
    **dict.fromkeys((_T.CHAR, _T.VARCHAR, _T.TEXT, _T.NCHAR, _T.NVARCHAR), STRING),
    **dict.fromkeys((_T.TIMESTAMP, _T.DATETIME, _T.TIMESTAMPTZ, _T.TIMESTAMPNTZ), DATETIME),
    _T.DATE: DATE,
    _T.BOOLEAN: BOOLEAN,
    _T.BLOB: BINARY,
}


def of_column(column: ColumnType) -> SqlType:
    return DATETIME if column.kind == "timestamp" else SqlType(column.kind, column.scale)


def of_value(value: object) -> SqlType | None:
    """Return the type of a bound parameter."""
    match value:
        case None:
            return NULL
        case bool():
            return BOOLEAN
        case int():
            return of_integer(value)
        case float():
            return DOUBLE
        case Decimal() if value.is_finite():
            return SqlType("decimal", max(0, -int(value.as_tuple().exponent)))
        case str():
            return STRING
        case bytes():
            return BINARY
        case datetime():
            return DATETIME
        case date():
            return DATE
    return None


def of_integer(value: int) -> SqlType:
    if -_INT_MAX <= value < _INT_MAX:
        return INT
    return BIGINT if -_BIGINT_MAX <= value < _BIGINT_MAX else HUGEINT


def of_literal(literal: exp.Literal) -> SqlType:
    if literal.is_string:
        return STRING
    text = str(literal.this).lower()
    if "e" in text:
        return DOUBLE
    whole, point, fraction = text.partition(".")
    return SqlType("decimal", len(fraction)) if point else of_integer(int(whole or 0))


def of_declared(kind: exp.DataType) -> SqlType | None:
    """Return the type that a CAST names."""
    if kind.this is _T.DECIMAL:
        parameters = [int(part.name) for part in kind.expressions]
        return SqlType("decimal", parameters[1] if len(parameters) > 1 else 0)
    return _DECLARED.get(kind.this)


def common(types: Iterable[SqlType | None]) -> SqlType | None:
    """Return the type that CASE, COALESCE and UNION make of their branches."""
    common_type: SqlType | None = NULL
    for each in types:
        if common_type is None or each is None:
            return None
        common_type = _pair(common_type, each)
    return common_type


def _pair(left: SqlType, right: SqlType) -> SqlType | None:
    if left == right or right.kind == "null":
        return left
    if left.kind == "null":
        return right
    if "string" in (left.kind, right.kind):
        return STRING
    if left.is_moment and right.is_moment:
        return DATETIME
    numbers = [BIGINT if each.kind == "boolean" else each for each in (left, right)]
    if all(each.is_number for each in numbers):
        return of_arithmetic(numbers)
    return None


def of_arithmetic(operands: Iterable[SqlType]) -> SqlType:
    """Return the type of a sum of numbers: integers widen to 64 bits, as MySQL's do."""
    kinds = list(operands)
    doubles = [each for each in kinds if each.kind == "double"]
    if doubles:
        if any(each == DOUBLE for each in doubles):
            return DOUBLE
        return QUOTIENT if all(each == QUOTIENT for each in doubles) else ROUNDED
    if any(each.kind == "decimal" for each in kinds):
        return SqlType("decimal", max(each.scale for each in kinds))
    return HUGEINT if any(each.kind == "hugeint" for each in kinds) else BIGINT
