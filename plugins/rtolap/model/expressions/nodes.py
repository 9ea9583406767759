"""The tree of an expression. NULL as in SQL: arithmetic and comparisons with it are NULL, logic has three
values."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Literal

import msgspec

ArithmeticOperator = Literal["+", "-", "*", "/"]
ComparisonOperator = Literal["=", "<>", "<", "<=", ">", ">="]
Function = Literal["abs", "lower", "upper"]
Constant = bool | str | Decimal | float | None


class Name(msgspec.Struct, frozen=True):
    """A column of the table."""

    name: str


class Value(msgspec.Struct, frozen=True):
    """A written value: numbers without an exponent are decimals, others doubles."""

    value: Constant


class Arithmetic(msgspec.Struct, frozen=True):
    operator: ArithmeticOperator
    left: Expression
    right: Expression


class Negative(msgspec.Struct, frozen=True):
    operand: Expression


class Comparison(msgspec.Struct, frozen=True):
    operator: ComparisonOperator
    left: Expression
    right: Expression


class Both(msgspec.Struct, frozen=True):
    """AND."""

    left: Expression
    right: Expression


class Either(msgspec.Struct, frozen=True):
    """OR."""

    left: Expression
    right: Expression


class Inverse(msgspec.Struct, frozen=True):
    """NOT."""

    operand: Expression


class IsNull(msgspec.Struct, frozen=True):
    operand: Expression


class Branch(msgspec.Struct, frozen=True):
    condition: Expression
    result: Expression


class Case(msgspec.Struct, frozen=True):
    """CASE: the result of the first branch whose condition is true, or `otherwise`."""

    branches: tuple[Branch, ...]
    otherwise: Expression


class Coalesce(msgspec.Struct, frozen=True):
    """The first operand that is not NULL."""

    operands: tuple[Expression, ...]


class Call(msgspec.Struct, frozen=True):
    function: Function
    operand: Expression


Expression = (
    Name
    | Value
    | Arithmetic
    | Negative
    | Comparison
    | Both
    | Either
    | Inverse
    | IsNull
    | Case
    | Coalesce
    | Call
)


def operands_of(node: Expression) -> tuple[Expression, ...]:
    match node:
        case Name() | Value():
            return ()
        case Arithmetic() | Comparison() | Both() | Either():
            return (node.left, node.right)
        case Negative() | Inverse() | IsNull() | Call():
            return (node.operand,)
        case Coalesce():
            return node.operands
        case Case():
            branches = (part for branch in node.branches for part in (branch.condition, branch.result))
            return (*branches, node.otherwise)


def names_of(node: Expression) -> tuple[str, ...]:
    """Return the columns that the expression reads, each once, in the order of the text."""
    return tuple(dict.fromkeys(_names(node)))


def _names(node: Expression) -> Iterator[str]:
    if isinstance(node, Name):
        yield node.name
    for operand in operands_of(node):
        yield from _names(operand)


def count_nodes(node: Expression) -> int:
    """Return how many values and operations the tree has. It may be as deep as it is large."""
    waiting, size = [node], 0
    while waiting:
        size += 1
        waiting += operands_of(waiting.pop())
    return size
