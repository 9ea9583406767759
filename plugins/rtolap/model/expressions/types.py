"""The type of an expression: what its value is for every event, or a reason why it cannot be exact.

Whole numbers and decimals are computed exactly: each operation has as many digits as it may need, up to
DIGITS_MAX in between. A double makes a double. A written text that is compared with a date or a timestamp
is read as one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal

from rtolap.base.errors import DefinitionError
from rtolap.column_types import BOOLEAN, DATE, DOUBLE, STRING, TIMESTAMP, ColumnType, decimal
from rtolap.model.expressions.nodes import (
    Arithmetic,
    Both,
    Call,
    Case,
    Coalesce,
    Comparison,
    Either,
    Expression,
    Inverse,
    IsNull,
    Name,
    Negative,
    Value,
)
from rtolap.model.table import Column

DIGITS_MAX = 76  # of a number of 256 bits
_INT_DIGITS, _BIGINT_DIGITS = 10, 19
TypeOf = Callable[[str], ColumnType]  # of a column; raises DefinitionError for one that is not there
Type = ColumnType | None  # None: of NULL


def type_of(node: Expression, column: TypeOf) -> Type:
    """Return the type; whole numbers are decimals without digits behind the point, of up to DIGITS_MAX.

    Raises DefinitionError for operands that do not fit each other, and for more digits.
    """
    match node:
        case Name():
            return as_exact(column(node.name))
        case Value():
            return _of_constant(node)
        case Negative():
            return _number(type_of(node.operand, column), "-")
        case Arithmetic():
            return _arithmetic(node, type_of(node.left, column), type_of(node.right, column))
        case Comparison():
            compared_type(node, type_of(node.left, column), type_of(node.right, column))
            return BOOLEAN
        case Both() | Either():
            for operand in (node.left, node.right):
                _condition(operand, column)
            return BOOLEAN
        case Inverse():
            _condition(node.operand, column)
            return BOOLEAN
        case IsNull():
            type_of(node.operand, column)
            return BOOLEAN
        case Case():
            for branch in node.branches:
                _condition(branch.condition, column)
            results = [type_of(branch.result, column) for branch in node.branches]
            return common_type([*results, type_of(node.otherwise, column)], "CASE")
        case Coalesce():
            return common_type([type_of(operand, column) for operand in node.operands], "COALESCE")
        case Call(function="abs"):
            return _number(type_of(node.operand, column), "ABS")
        case Call():
            found = type_of(node.operand, column)
            if found not in (None, STRING):
                raise _misfit(node.function.upper(), "a text", found)
            return found


def as_exact(kind: ColumnType) -> ColumnType:
    """Return whole numbers as decimals; other types as they are."""
    if kind.kind == "int":
        return decimal(_INT_DIGITS, 0)
    return decimal(_BIGINT_DIGITS, 0) if kind.kind == "bigint" else kind


def common_type(types: Sequence[Type], where: str) -> Type:
    """Return the type that holds the values of all. Raises DefinitionError if there is none."""
    found: Type = None
    for each in types:
        found = _both(found, each, where)
    return found


def compared_type(node: Comparison, left: Type, right: Type) -> Type:
    """Return the type in which both sides are compared."""
    for side, other in ((node.left, right), (node.right, left)):
        if isinstance(side, Value) and isinstance(side.value, str) and other in (DATE, TIMESTAMP):
            moment_of(side.value, other)
            return other
    return common_type([left, right], node.operator)


def moment_of(text: str, kind: ColumnType) -> date | datetime:
    """Return the day or the moment that a text names. Raises DefinitionError."""
    try:
        return date.fromisoformat(text) if kind == DATE else datetime.fromisoformat(text)
    except ValueError as error:
        raise DefinitionError(
            "a text is compared with a time",
            expected="2013-01-31" if kind == DATE else "2013-01-31 10:00:00",
            found=repr(text),
        ) from error


def assignment_fault(column: Column, found: Type) -> str:
    """Return what is expected of an expression instead of this type; empty if the column takes it."""
    declared = column.column_type
    match declared.kind:
        case _ if found is None:
            return ""
        case "int" | "bigint":
            return "" if found.kind == "decimal" and not found.scale else "a whole number"
        case "decimal":
            if found.kind != "decimal":
                return "a number that is exact: no double and no division"
            is_enough = found.scale <= declared.scale or column.rounding == "half_up"
            return (
                "" if is_enough else f"at most {declared.scale} digits behind the point, or rounding: half_up"
            )
        case "double":
            return "" if found.kind in ("decimal", "double") else "a number"
    return "" if found == declared else f"a {declared}"


def _both(one: Type, other: Type, where: str) -> Type:
    if one is None or other is None or one == other:
        return one or other
    kinds = {one.kind, other.kind}
    if kinds == {"decimal"}:
        scale = max(one.scale, other.scale)
        whole = max(one.precision - one.scale, other.precision - other.scale)
        return _digits(whole + scale, scale, where)
    if kinds == {"decimal", "double"}:
        return DOUBLE
    raise _misfit(where, str(one), other)


def _arithmetic(node: Arithmetic, left: Type, right: Type) -> Type:
    one, other = _number(left, node.operator), _number(right, node.operator)
    if one is None or other is None:
        return None
    if node.operator == "/" or DOUBLE in (one, other):
        return DOUBLE
    if node.operator == "*":
        return _digits(one.precision + other.precision + 1, one.scale + other.scale, "*")
    scale = max(one.scale, other.scale)
    whole = max(one.precision - one.scale, other.precision - other.scale)
    return _digits(whole + scale + 1, scale, node.operator)


def _of_constant(node: Value) -> Type:
    match node.value:
        case None:
            return None
        case bool():
            return BOOLEAN
        case str():
            return STRING
        case float():
            return DOUBLE
        case Decimal():
            _, digits, exponent = node.value.as_tuple()
            assert isinstance(exponent, int), "a written number is finite"
            return _digits(max(len(digits), -exponent), -exponent, "a number")


def _digits(precision: int, scale: int, where: str) -> ColumnType:
    if precision > DIGITS_MAX:
        raise DefinitionError(
            f"{where} may need {precision} digits",
            expected=f"at most {DIGITS_MAX}",
            action="declare columns with fewer digits, or a double",
        )
    return decimal(precision, scale)


def _number(kind: Type, where: str) -> Type:
    if kind is not None and kind.kind not in ("decimal", "double"):
        raise _misfit(where, "numbers", kind)
    return kind


def _condition(node: Expression, column: TypeOf) -> None:
    kind = type_of(node, column)
    if kind not in (None, BOOLEAN):
        raise _misfit("a condition", "a boolean, or a comparison", kind)


def _misfit(where: str, expected: str, found: Type) -> DefinitionError:
    return DefinitionError(f"{where} does not fit", expected=expected, found=str(found))
