"""Statements as their shape and its literals, written in the text or bound to question marks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from rtolap.query.shapes.statement_shape import is_plain, operands_of, shape_of
from rtolap.query.shapes.value_keys import value_key
from rtolap.query.sql.statement import SqlStatement

_TEXTS_MAX = 512  # whose shapes are remembered: a statement is looked up twice
_shape_of = lru_cache(_TEXTS_MAX)(shape_of)
_operands_of = lru_cache(_TEXTS_MAX)(operands_of)


class ShapedStatement(NamedTuple):
    """One statement of a shape.

    Attributes:
        key: what all statements of the shape have in common.
        literals: what the statement has in the place of others' literals.
        with_literals: returns the statement and its values with other literals.
    """

    key: Hashable
    literals: tuple[str, ...]
    with_literals: Callable[[Sequence[str]], tuple[SqlStatement, Mapping[str, object]]]


def text_key(text: str, database: str | None) -> Hashable | None:
    """Return what a text has in common with all texts of its shape; None where it has no shape."""
    shape = _shape_of(text)
    return None if shape is None else (database, shape.pieces)


def shaped(statement: SqlStatement, values: Mapping[str, object]) -> ShapedStatement | None:
    """Return the statement's shape and literals; None if it has no literal.

    `values`: parameter → value, hashable and of all its parameters.
    """
    if statement.given:
        return None
    return _bound(statement, values) if statement.parameters else _written(statement)


def _written(statement: SqlStatement) -> ShapedStatement | None:
    shape = _shape_of(statement.text)
    if shape is None:
        return None
    return ShapedStatement(
        (statement.database, statement.zone, shape.pieces),
        shape.literals,
        lambda literals: (replace(statement, text=shape.text(literals)), {}),
    )


def _bound(statement: SqlStatement, values: Mapping[str, object]) -> ShapedStatement | None:
    operands = _operands_of(statement.text)
    if len(operands) != len(statement.parameters):
        return None
    literals: dict[str, str] = {}
    for name, is_operand in zip(statement.parameters, operands, strict=True):
        value = values[name]
        if is_operand and isinstance(value, str) and is_plain(value):
            literals[name] = value
    if not literals:
        return None
    others = tuple((name, value_key(values[name])) for name in statement.parameters if name not in literals)
    return ShapedStatement(
        (statement.database, statement.zone, statement.text, tuple(literals), others),
        tuple(literals.values()),
        lambda others: (statement, {**values, **dict(zip(literals, others, strict=True))}),
    )
