"""The reads of stored tables, and the counting of their sketches.

A condition on one table's columns goes along to its nodes. Where nodes send rows it stays in the engine's
SQL too, so that what a node leaves out saves work and decides nothing. Where they send partial aggregates
(`pushed`) the nodes alone judge it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from sqlglot import exp

from rtolap.aggregates.sketch_bytes import HLL_BYTES
from rtolap.base.errors import QueryError
from rtolap.model.predicate import Predicate
from rtolap.protocols.stored_tables.messages import TableInfo
from rtolap.query.approval.own_functions import HllSketch
from rtolap.query.catalogue import sketches_of
from rtolap.query.engine_functions.sketches import BITMAP_SIZE, HLL_ESTIMATE
from rtolap.query.plan import NodeWork, TableRead, TimeRange
from rtolap.query.sql.dialect import user_sql
from rtolap.query.sql.pruning import instants
from rtolap.query.sql.rules.context import Context, SourceNeed
from rtolap.query.sql.rules.pushdown import relation_name
from rtolap.query.sql.rules.stored.pushed import averages_as_quotients, push
from rtolap.query.sql.rules.stored.scopes import columns_read, conditions, table_scopes

_OVER_ROWS = {"hll_union_agg": "hll", "ndv": "hll", "bitmap_union_count": "bitmap"}
_OF_ONE = {"hll_cardinality": "hll", "bitmap_count": "bitmap"}
_UNIONS = {"hll_union": "hll", "hll_raw_agg": "hll", "bitmap_union": "bitmap"}
_ENGINE = {"hll": HLL_ESTIMATE, "bitmap": BITMAP_SIZE}


def stored_sketches(tree: exp.Expr, context: Context) -> exp.Expr:
    """Turn HLL_UNION_AGG, BITMAP_UNION_COUNT and their like into calls of the engine's own functions."""
    kinds: dict[tuple[int, str, str], str] = {}
    for source in table_scopes(tree, context):
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
    """Note what each stored table has to give: by SELECT where its nodes do more than filter, else columns,
    filter and time for all SELECTs that name it."""
    needs: dict[str, SourceNeed[TableInfo]] = {}
    reasons: dict[str, list[str]] = {}
    reads: list[TableRead] = []
    for source in list(table_scopes(tree, context)):
        averages_as_quotients(source)
        key = source.node.name
        pushed = push(source, context)
        if isinstance(pushed, str):
            need = needs.setdefault(key, SourceNeed(source.table))
            need.columns |= columns_read(source)
            need.filters.append(conditions(source, context).pushed)
            reasons.setdefault(key, []).append(pushed)
            relation = relation_name(key)
        else:
            relation = f"{relation_name(key)}#{len(reads) + 1}"
            reads.append(_read(source.table, relation, pushed.columns, pushed.filter, pushed.work))
        source.node.set("this", exp.to_identifier(relation, quoted=True))
    for key, need in sorted(needs.items()):
        work = NodeWork(rows_because="; ".join(dict.fromkeys(reasons[key])))
        reads.append(_read(need.source, relation_name(key), need.columns, need.filter(), work))
    context.tables = tuple(sorted(reads, key=lambda read: read.relation))
    return tree


def _read(
    table: TableInfo, relation: str, needed: Collection[str], condition: Predicate | None, work: NodeWork
) -> TableRead:
    column = _partition_column(table)
    names = table.schema.names
    columns = tuple(name for name in names if name in needed) or names[:1]  # to count rows by
    return TableRead(
        table=table,
        relation=relation,
        columns=columns,
        filter=condition,
        time=TimeRange() if column is None else instants(condition, column),
        work=work,
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
    if isinstance(node, HllSketch):
        if kind_of(argument) != "hll" or argument is None:
            return None
        return exp.Anonymous(this=HLL_BYTES, expressions=[_listed(node, argument)])
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
    return "", node.this if isinstance(node, exp.ApproxDistinct | HllSketch) else None


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
