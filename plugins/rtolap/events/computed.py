"""Computed columns: the tree of an expression over whole columns, exact as `model.expressions.types` says.

A number is held in the narrowest of int64, decimal128 and decimal256 that takes all values of its type, so no
operation can overflow. Only the last step, into the column's declared type, may find a value that does not
fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.column_types import DOUBLE, ColumnType
from rtolap.columnar.schema import arrow_type
from rtolap.events.decimals import fitting, rounded
from rtolap.model.expressions.grammar import parse_expression
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
    names_of,
)
from rtolap.model.expressions.types import Type, as_exact, common_type, compared_type, moment_of, type_of
from rtolap.model.table import Column, Table

_LONG_DIGITS = 18  # of whole numbers that 64 bits always hold
_NARROW_DIGITS = 38
_COMPARE: Mapping[str, Callable[..., Any]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_COMPUTE: Mapping[str, Callable[..., Any]] = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}


class ComputedColumn:
    """A computed column of a table that is valid.

    Attributes:
        name: of the column.
        text: the expression.
        inputs: the columns that it is made of.
    """

    def __init__(self, table: Table, column: Column) -> None:
        assert column.expression is not None, "a computed column has an expression"
        self.name = column.name
        self.text = column.expression
        self._tree = parse_expression(column.expression)
        self._column = column
        self._types: Callable[[str], ColumnType] = lambda name: table.column(name).column_type

    def values(self, inputs: Mapping[str, pa.Array], rows: int) -> tuple[pa.Array, NDArray[np.bool_]]:
        """Return the column in its declared type, and where a value does not fit it; there it is null."""
        found = self._value(self._tree, inputs)
        if isinstance(found, pa.Scalar):
            found = pa.repeat(found, rows)
        declared = arrow_type(self._column.column_type)
        if pa.types.is_decimal(found.type) and self._column.rounding == "half_up":
            column = rounded(found, declared)
        else:
            column = fitting(found, declared)
        if column.null_count == found.null_count:
            return column, np.zeros(rows, bool)
        return column, pc.and_(column.is_null(), found.is_valid()).to_numpy(zero_copy_only=False)

    def _type(self, node: Expression) -> Type:
        return type_of(node, self._types)

    def _value(self, node: Expression, inputs: Mapping[str, pa.Array]) -> Any:
        """Return the values in the storage of the node's type: an array, or a scalar for all rows."""
        match node:
            case Name():
                return _stored(inputs[node.name], as_exact(self._types(node.name)))
            case Value():
                return _stored(pa.scalar(node.value), self._type(node))
            case Negative():
                return pc.negate(self._value(node.operand, inputs))
            case Arithmetic():
                return self._arithmetic(node, inputs)
            case Comparison():
                return self._comparison(node, inputs)
            case Both():
                return pc.and_kleene(self._condition(node.left, inputs), self._condition(node.right, inputs))
            case Either():
                return pc.or_kleene(self._condition(node.left, inputs), self._condition(node.right, inputs))
            case Inverse():
                return pc.invert(self._condition(node.operand, inputs))
            case IsNull():
                return pc.is_null(self._value(node.operand, inputs))
            case Case():
                return self._case(node, inputs)
            case Coalesce():
                kind = self._type(node)
                return pc.coalesce(*(_stored(self._value(each, inputs), kind) for each in node.operands))
            case Call():
                return _CALLS[node.function](self._value(node.operand, inputs))

    def _condition(self, node: Expression, inputs: Mapping[str, pa.Array]) -> Any:
        return pc.cast(self._value(node, inputs), pa.bool_())

    def _comparison(self, node: Comparison, inputs: Mapping[str, pa.Array]) -> Any:
        kind = compared_type(node, self._type(node.left), self._type(node.right))
        if kind is None:  # NULL beside NULL
            return pa.scalar(None, pa.bool_())
        sides: list[Any] = []
        for side in (node.left, node.right):
            if isinstance(side, Value) and isinstance(side.value, str) and kind.kind in _TIMES:
                value: Any = pa.scalar(moment_of(side.value, kind))
            else:
                value = self._value(side, inputs)
            sides.append(_stored(value, kind))
        return _COMPARE[node.operator](*sides)

    def _arithmetic(self, node: Arithmetic, inputs: Mapping[str, pa.Array]) -> Any:
        left, right = self._value(node.left, inputs), self._value(node.right, inputs)
        kind = self._type(node)
        if kind is None:
            return pa.scalar(None)
        if kind == DOUBLE:
            left, right = pc.cast(left, pa.float64()), pc.cast(right, pa.float64())
            if node.operator == "/":
                return pc.divide(left, pc.if_else(pc.equal(right, 0.0), pa.scalar(None, pa.float64()), right))
            return _COMPUTE[node.operator](left, right)
        kinds = self._type(node.left), self._type(node.right)
        if node.operator != "*":  # both with the digits of either
            kinds = (common_type(kinds, node.operator),) * 2
        wide = _storage(kind)
        return _COMPUTE[node.operator](_widened(left, kinds[0], wide), _widened(right, kinds[1], wide))

    def _case(self, node: Case, inputs: Mapping[str, pa.Array]) -> Any:
        kind = self._type(node)
        found = _stored(self._value(node.otherwise, inputs), kind)
        for branch in reversed(node.branches):
            holds = pc.fill_null(self._condition(branch.condition, inputs), False)
            found = pc.if_else(holds, _stored(self._value(branch.result, inputs), kind), found)
        return found


class Condition:
    """The condition of a table that is valid.

    Attributes:
        inputs: the columns that it reads.
    """

    def __init__(self, table: Table, where: str) -> None:
        self.inputs = frozenset(names_of(parse_expression(where)))
        self._column = ComputedColumn(table, Column("where", "boolean", expression=where))

    def holds(self, inputs: Mapping[str, pa.Array], rows: int) -> NDArray[np.bool_]:
        """Return where the condition is true, neither false nor null."""
        values, _ = self._column.values(inputs, rows)
        found: NDArray[np.bool_] = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
        return found


_TIMES = ("date", "timestamp")
_CALLS: Mapping[str, Callable[[Any], Any]] = {"abs": pc.abs, "lower": pc.utf8_lower, "upper": pc.utf8_upper}


def _storage(kind: ColumnType) -> pa.DataType:
    """Return the Arrow type that holds all values."""
    if kind.kind != "decimal":
        return arrow_type(kind)
    if kind.precision <= _LONG_DIGITS and not kind.scale:
        return pa.int64()
    width = pa.decimal128 if kind.precision <= _NARROW_DIGITS else pa.decimal256
    return width(kind.precision, kind.scale)


def _stored(value: Any, kind: Type) -> Any:
    """Return the values in the storage of a type that takes them."""
    if kind is None:
        return value
    return _cast(value, _storage(kind))


def _widened(value: Any, kind: Type, result: pa.DataType) -> Any:
    """Return an operand as wide as the result, in its own digits: Arrow adds those that the result needs."""
    assert kind is not None, "an operand of a number is a number"
    if pa.types.is_int64(result):
        return _cast(value, result)
    width = pa.decimal128 if pa.types.is_decimal128(result) else pa.decimal256
    return _cast(value, width(kind.precision, kind.scale))


def _cast(value: Any, wanted: pa.DataType) -> Any:
    if value.type == wanted:
        return value
    if pa.types.is_decimal(wanted) and pa.types.is_integer(value.type):
        value = pc.cast(value, pa.decimal128(_LONG_DIGITS + 1, 0))  # which Arrow wants for any such number
    return pc.cast(value, wanted)
