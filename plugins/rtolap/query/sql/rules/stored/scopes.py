"""SELECTs that read stored tables: their columns, and the conditions that nodes can judge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from rtolap.column_types import ColumnType
from rtolap.model.predicate import And, Compare, CompareOp, Not, Or, Predicate
from rtolap.protocols.stored_tables.messages import TableInfo
from rtolap.query.catalogue import unknown_column
from rtolap.query.sql.filters import FilterBuilder, FilterColumns
from rtolap.query.sql.rules.context import Context, is_nullable, named_tables

_ABOVE: dict[CompareOp, CompareOp] = {"gt": "le", "ge": "lt"}


@dataclass(frozen=True)
class TableScope:
    """A SELECT that reads a stored table, or a lookup over one.

    Attributes:
        alias: the table's name in the SELECT.
        columns: name → type of the relation's columns.
    """

    scope: Scope
    alias: str
    node: exp.Table
    table: TableInfo
    columns: Mapping[str, ColumnType]

    @property
    def select(self) -> exp.Select:
        expression = self.scope.expression
        assert isinstance(expression, exp.Select), "only a SELECT has sources"
        return expression


class Conditions(NamedTuple):
    """The terms of a WHERE.

    Attributes:
        pushed: what nodes judge as the engine does; None: nothing.
        left: the terms that only the engine judges.
    """

    pushed: Predicate | None
    left: tuple[exp.Expr, ...]


def table_scopes(tree: exp.Expr, context: Context) -> Iterator[TableScope]:
    if not context.catalogue.stored:
        return
    for scope, alias, node in named_tables(tree, context):
        table = context.catalogue.stored_table(node.name)
        if table is not None:
            yield TableScope(scope, alias, node, table, context.catalogue.columns(node.name))


def columns_read(source: TableScope) -> set[str]:
    """Return the table's columns that the SELECT names. Raises UnknownColumn."""
    known = source.columns
    if source.select.is_star or any(source.select.find_all(exp.Star)):
        counted = all(isinstance(star.parent, exp.Count) for star in source.select.find_all(exp.Star))
        if not counted:
            return set(known)
    named = {column.name for column in source.scope.columns if column.table == source.alias}
    for name in named - set(known):
        raise unknown_column(name, source.table.qualified_name, known)
    aliases = {name.lower() for name in source.select.named_selects}
    for column in source.scope.unqualified_columns:
        if column.name in known:
            named.add(column.name)
        elif len(source.scope.selected_sources) == 1:
            late = column.find_ancestor(exp.Order, exp.Having, exp.Qualify, exp.Group, exp.Select)
            if isinstance(late, exp.Select) or column.name.lower() not in aliases:
                raise unknown_column(column.name, source.table.qualified_name, known)
    return named


def conditions(source: TableScope, context: Context) -> Conditions:
    """Return the terms of the SELECT's WHERE, divided by who can judge them."""
    where = source.select.args.get("where")
    if where is None:
        return Conditions(None, ())
    terms = tuple(where.this.flatten()) if isinstance(where.this, exp.And) else (where.this,)
    if is_nullable(source.select, source.alias):
        return Conditions(None, terms)
    columns = {name: kind for name, kind in source.columns.items() if kind.kind != "binary"}
    builder = FilterBuilder(FilterColumns(columns), source.alias, context.fold)
    judged = [builder.build(term) for term in terms]
    pushed = tuple(_as_the_engine(each, columns) for each in judged if each is not None)
    left = tuple(term for term, each in zip(terms, judged, strict=True) if each is None)
    if not pushed:
        return Conditions(None, left)
    return Conditions(pushed[0] if len(pushed) == 1 else And(pushed), left)


def _as_the_engine(predicate: Predicate, columns: Mapping[str, ColumnType]) -> Predicate:
    """Return the predicate with NaN above all doubles, as the engine compares. Arrow's comparisons with NaN
    are never TRUE."""
    match predicate:
        case And(terms=terms):
            return And(tuple(_as_the_engine(term, columns) for term in terms))
        case Or(terms=terms):
            return Or(tuple(_as_the_engine(term, columns) for term in terms))
        case Not(term=term):
            return Not(_as_the_engine(term, columns))
        case Compare(column=name, op="gt" | "ge" as op, value=value) if columns[name].kind == "double":
            return Not(Compare(name, _ABOVE[op], value))
    return predicate
