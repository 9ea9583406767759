"""Filters that travel from the query service to receivers and to history: a tree, never SQL text.

Three-valued logic as in SQL: a row matches when the whole tree is TRUE, not when it is NULL.
Values are JSON scalars in the column's own terms: decimals, dates (`2013-01-31`) and timestamps
(`2013-01-31 10:00:00.000000`) as strings, everything else as is.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Scalar = str | int | float | bool | None
CompareOp = Literal["eq", "ne", "lt", "le", "gt", "ge"]


class Compare(msgspec.Struct, frozen=True, tag="compare"):
    column: str
    op: CompareOp
    value: Scalar


class In(msgspec.Struct, frozen=True, tag="in"):
    """`values` holds no null; `negated` is NOT IN."""

    column: str
    values: tuple[Scalar, ...]
    negated: bool = False


class IsNull(msgspec.Struct, frozen=True, tag="is_null"):
    column: str
    negated: bool = False


class Like(msgspec.Struct, frozen=True, tag="like"):
    """SQL LIKE with % and _ and no escape character."""

    column: str
    pattern: str
    negated: bool = False


class And(msgspec.Struct, frozen=True, tag="and"):
    terms: tuple[Predicate, ...]


class Or(msgspec.Struct, frozen=True, tag="or"):
    terms: tuple[Predicate, ...]


class Not(msgspec.Struct, frozen=True, tag="not"):
    term: Predicate


Predicate = Compare | In | IsNull | Like | And | Or | Not


def terms_of(predicate: And | Or) -> tuple[Predicate, ...]:
    """Return the terms, those of terms of the same kind in their place: `(a AND b) AND c` has three."""
    found: list[Predicate] = []
    waiting: list[Predicate] = [predicate]
    while waiting:
        term = waiting.pop()
        if isinstance(term, And | Or) and type(term) is type(predicate):
            waiting.extend(reversed(term.terms))
        else:
            found.append(term)
    return tuple(found)


def columns_of(predicate: Predicate | None) -> frozenset[str]:
    match predicate:
        case None:
            return frozenset()
        case And(terms=terms) | Or(terms=terms):
            return frozenset().union(*(columns_of(term) for term in terms))
        case Not(term=term):
            return columns_of(term)
        case Compare() | In() | IsNull() | Like():
            return frozenset((predicate.column,))
