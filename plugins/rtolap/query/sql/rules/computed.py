"""Computed columns under another name: a statement may write their expression out.

`SUM(price * quantity)` is asked of a cube that keeps `revenue`, declared as `price * quantity`, and neither
price nor quantity. The rule puts the column in the place of the expression, before columns are looked up.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from rtolap.model.cube import Schema
from rtolap.query.sql.dialect import RtolapSql
from rtolap.query.sql.rules.context import Context


def computed(tree: exp.Expr, context: Context) -> exp.Expr:
    """Put computed columns of cubes in the place of their expressions."""
    for scope in traverse_scope(tree):
        if not isinstance(scope.expression, exp.Select):
            continue
        for alias, (_, source) in scope.selected_sources.items():
            if isinstance(source, exp.Table) and source.name in context.catalogue.cubes:
                schema = context.catalogue.cubes[source.name]
                _replace(scope, alias, schema, is_alone=len(scope.selected_sources) == 1)
    return tree


def _replace(scope: Scope, alias: str, schema: Schema, *, is_alone: bool) -> None:
    """Replace expressions over the cube's columns.

    Args:
        is_alone: True if nothing else is read, so that a column without a table is the cube's.
    """
    assert isinstance(scope.expression, exp.Select), "only a SELECT has sources"
    labels = {name.lower() for name in scope.expression.named_selects}
    for name, pattern in _patterns(schema):
        if labels & {column.name.lower() for column in pattern.find_all(exp.Column)}:
            continue  # an alias that is called like a column may be meant
        for node in list(scope.find_all(type(pattern))):
            if _plain(node) == pattern and all(
                column.table == alias or (is_alone and not column.table)
                for column in node.find_all(exp.Column)
            ):
                node.replace(exp.column(name, table=alias, quoted=True))


def _patterns(schema: Schema) -> Iterator[tuple[str, exp.Expr]]:
    """Yield the cube's computed columns with their trees, larger expressions first."""
    declared = (schema.table.column(name) for name in schema.source_columns)
    found = [
        (column.name, _parsed(column.expression)) for column in declared if column.expression is not None
    ]
    yield from sorted(found, key=lambda one: -sum(1 for _ in one[1].walk()))


@lru_cache(maxsize=512)
def _parsed(text: str) -> exp.Expr:
    return _plain(sqlglot.parse_one(text, dialect=RtolapSql))


def _plain(node: exp.Expr) -> exp.Expr:
    """Return a copy without parentheses, tables and the spelling of names."""
    return node.copy().transform(_plain_node)


def _plain_node(node: exp.Expr) -> exp.Expr:
    inner = node.unnest()
    return exp.column(inner.name.lower()) if isinstance(inner, exp.Column) else inner
