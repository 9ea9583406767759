"""The reads of stored tables, and the counting of their sketches.

A condition on one table's columns goes along to its nodes, and stays in the engine's SQL: what a node leaves
out saves work, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from rtolap.base.errors import QueryError
from rtolap.column_types import ColumnType
from rtolap.model.predicate import And, Predicate
from rtolap.protocols.stored_tables.messages import TableInfo
from rtolap.query.catalogue import sketches_of, unknown_column
from rtolap.query.plan import TableRead, TimeRange
from rtolap.query.sketches import BITMAP_SIZE, HLL_ESTIMATE
from rtolap.query.sql.dialect import user_sql
from rtolap.query.sql.filters import FilterBuilder, FilterColumns
from rtolap.query.sql.pruning import instants
from rtolap.query.sql.rules.context import Context, SourceNeed, is_nullable, named_tables
from rtolap.query.sql.rules.pushdown import relation_name

_OVER_ROWS = {"hll_union_agg": "hll", "ndv": "hll", "bitmap_union_count": "bitmap"}
_OF_ONE = {"hll_cardinality": "hll", "bitmap_count": "bitmap"}
_UNIONS = {"hll_union": "hll", "hll_raw_agg": "hll", "bitmap_union": "bitmap"}
_ENGINE = {"hll": HLL_ESTIMATE, "bitmap": BITMAP_SIZE}


@dataclass(frozen=True)
class _Source:
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


def stored_sketches(tree: exp.Expr, context: Context) -> exp.Expr:
    """Turn HLL_UNION_AGG, BITMAP_UNION_COUNT and their like into calls of the engine's own functions."""
    kinds: dict[tuple[int, str, str], str] = {}
    for source in _sources(tree, context):
        for column in source.scope.columns:
            if column.table == source.alias:
                kind = sketches_of(source.table).get(column.name)
                if kind is not None:
                    kinds[id(column), column.table, column.name] = kind

    def kind_of(node: exp.Expr | None) -> str | None:
        column = None if node is None else node.unnest()
        if not isinstance(column, exp.Column):
            return None
        return kinds.get((id(column), column.table, column.name))

    for node in reversed(list(tree.find_all(exp.Func))):
        replacement = _counted(node, kind_of)
        if replacement is not None:
            target = node.parent if isinstance(node.parent, exp.Filter) else node
            assert target is not None
            target.replace(replacement)
    return tree


def stored_tables(tree: exp.Expr, context: Context) -> exp.Expr:
    """Return columns, filter and time of each stored table that the statement names."""
    needs: dict[str, SourceNeed[TableInfo]] = {}
    sources = list(_sources(tree, context))
    for source in sources:
        need = needs.setdefault(source.node.name, SourceNeed(source.table))
        need.columns |= _columns(source)
        need.filters.append(_filter(source, context))
    for source in sources:
        source.node.set("this", exp.to_identifier(relation_name(source.node.name), quoted=True))
    context.tables = tuple(_read(key, need) for key, need in sorted(needs.items()))
    return tree


def _sources(tree: exp.Expr, context: Context) -> Iterator[_Source]:
    for scope, alias, node in named_tables(tree):
        table = context.catalogue.stored_table(node.name)
        if table is not None:
            yield _Source(scope, alias, node, table, context.catalogue.columns(node.name))


def _columns(source: _Source) -> set[str]:
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


def _filter(source: _Source, context: Context) -> Predicate | None:
    where = source.select.args.get("where")
    if where is None or is_nullable(source.select, source.alias):
        return None
    # Of doubles the engine thinks otherwise than Arrow: it compares NaN, as the largest of them.
    columns = {name: kind for name, kind in source.columns.items() if kind.kind not in ("binary", "double")}
    builder = FilterBuilder(FilterColumns(columns), source.alias, context.fold)
    conjuncts = where.this.flatten() if isinstance(where.this, exp.And) else [where.this]
    pushed = [predicate for each in conjuncts if (predicate := builder.build(each)) is not None]
    if not pushed:
        return None
    return pushed[0] if len(pushed) == 1 else And(tuple(pushed))


def _read(key: str, need: SourceNeed[TableInfo]) -> TableRead:
    table, combined = need.source, need.filter()
    policy = table.definition.partitions
    column = _partition_column(table)
    names = table.schema.names
    columns = tuple(name for name in names if name in need.columns) or names[:1]  # to count rows by
    return TableRead(
        table=table,
        relation=relation_name(key),
        columns=columns,
        filter=combined,
        time=TimeRange() if policy is None or column is None else instants(combined, column),
    )


def _partition_column(table: TableInfo) -> str | None:
    """Return its present name: the first of those that neither partition nor buckets may lose."""
    if table.definition.partitions is None:
        return None
    return table.schema.by_id(table.schema.pinned[0]).name


def _counted(node: exp.Expr, kind_of: Callable[[exp.Expr | None], str | None]) -> exp.Expr | None:
    """Return the engine's call in the place of `node`; None where it is about no sketch."""
    name, argument = _call(node)
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Distinct):
        only = node.this.expressions[0] if len(node.this.expressions) == 1 else None
        kind = kind_of(only)
        return None if kind is None or only is None else _estimate(kind, _listed(node, only))
    if isinstance(node, exp.ApproxDistinct):
        kind = kind_of(argument)
        return None if kind is None or argument is None else _estimate(kind, _listed(node, argument))
    if name in _OVER_ROWS:
        kind = _OVER_ROWS[name]
        if argument is None or kind_of(argument) != kind:
            raise _no_sketch(node, kind)
        return _estimate(kind, _listed(node, argument))
    if name in _OF_ONE:
        kind = _OF_ONE[name]
        inner, united = _call(argument) if argument is not None else ("", None)
        if _UNIONS.get(inner) == kind and united is not None and kind_of(united) == kind:
            return _estimate(kind, _listed(node, united))
        if argument is None or kind_of(argument) != kind:
            raise _no_sketch(node, kind)
        return _estimate(kind, exp.Array(expressions=[argument.copy()]))
    return None


def _call(node: exp.Expr) -> tuple[str, exp.Expr | None]:
    """Return a function's name and its only argument."""
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower(), node.expressions[0] if len(node.expressions) == 1 else None
    if isinstance(node, exp.BitmapCount):
        return "bitmap_count", node.this
    return "", node.this if isinstance(node, exp.ApproxDistinct) else None


def _listed(node: exp.Expr, argument: exp.Expr) -> exp.Expr:
    sketches: exp.Expr = exp.Anonymous(this="LIST", expressions=[argument.copy()])
    if isinstance(node.parent, exp.Filter):
        return exp.Filter(this=sketches, expression=node.parent.expression.copy())
    return sketches


def _estimate(kind: str, sketches: exp.Expr) -> exp.Expr:
    return exp.cast(exp.Anonymous(this=_ENGINE[kind], expressions=[sketches]), exp.DataType.Type.BIGINT)


def _no_sketch(node: exp.Expr, kind: str) -> QueryError:
    return QueryError(
        f"{user_sql(node)} counts no sketch", expected=f"one column of type {kind} of a stored table"
    )
