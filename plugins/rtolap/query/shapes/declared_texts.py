"""Texts that the definition of a cube names: in computed columns, and in conditions of measures.

A statement that compares with such a text may have what is declared in its place. So its plan is not that of
other statements of its shape, and no template is filled with the text.
"""

from __future__ import annotations

from collections.abc import Iterable

from rtolap.model.cube import Schema
from rtolap.model.expressions.grammar import parse_expression
from rtolap.model.expressions.nodes import Expression, Value, operands_of


def declared_texts(schemas: Iterable[Schema]) -> frozenset[str]:
    """Return the texts in the declared expressions of cubes, as `folded` gives them."""
    expressions = {
        column.expression
        for schema in schemas
        for column in (*schema.table.columns, *schema.filtered_columns.values())
        if column.expression is not None
    }
    return frozenset(folded(text) for each in expressions for text in _texts(parse_expression(each)))


def folded(text: str) -> str:
    """Return the text without its capitals: a spelling that is compared more loosely is left out too."""
    return text.casefold()


def _texts(expression: Expression) -> Iterable[str]:
    waiting = [expression]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Value) and isinstance(node.value, str):
            yield node.value
        waiting += operands_of(node)
