"""Statements whose rows are the merged partials of one cube: noted for `query.cubes.merged_answer`.

What is recognised: one SELECT over one cube; a GROUP BY of exactly the dimensions that are read, or none;
columns and keys of ORDER BY that are a dimension, or what a function reads back (`Aggregate.read`) and can be
finished without the engine (`Aggregate.finish`); LIMIT and OFFSET. Whatever else a statement holds leaves it
to the engine.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from rtolap.aggregates.accumulator import Accumulator, Partial
from rtolap.aggregates.function import Aggregate
from rtolap.aggregates.registry import AGGREGATES
from rtolap.query.plan import CubeRead, MergedColumn, MergedOrder, PlainMerge
from rtolap.query.sql.rules.context import Context
from rtolap.query.sql.rules.templates import shared_template

_CLAUSES = frozenset(("expressions", "from_", "group", "order", "limit", "offset"))
_KEYS = frozenset(("string", "boolean", "int", "bigint", "decimal", "date", "timestamp"))  # compared alike


def plain_merge(tree: exp.Expr, context: Context) -> exp.Expr:
    """Set `context.merge` if the statement is a plain merge. The tree stays as it is."""
    others = context.tables or context.lookups or context.information
    if len(context.reads) == 1 and not others and context.latest is None and isinstance(tree, exp.Select):
        context.merge = _recognised(tree, context.reads[0])
    return tree


def _recognised(select: exp.Select, read: CubeRead) -> PlainMerge | None:
    alias = _only_source(select, read)
    if alias is None or _used(select) - _CLAUSES:
        return None
    columns = _Columns(read, alias)
    if not _groups_by_what_is_read(select, read, columns):
        return None
    shown = [
        (projection.alias_or_name, columns.find(projection.unalias())) for projection in select.expressions
    ]
    named: dict[str, MergedColumn] = {}
    for name, column in shown:
        if column is None or name.lower() in named:
            return None
        named[name.lower()] = column
    order: list[MergedOrder] = []
    ordering = select.args.get("order")
    for ordered in () if ordering is None else ordering.expressions:
        key = _order_key(ordered, named, columns)
        if key is None:
            return None
        order.append(key)
    try:
        limit, offset = (_number(select.args.get(clause)) for clause in ("limit", "offset"))
    except ValueError:
        return None
    listed = tuple((name, column) for name, column in shown if column is not None)
    return PlainMerge(listed, tuple(order), limit, offset)


class _Columns:
    """Tells what a node of the tree is among the columns of a plain merge."""

    def __init__(self, read: CubeRead, alias: str) -> None:
        self._read = read
        self._alias = alias
        self._partials = {partial.name: partial for partial in read.schema.partials}

    def find(self, node: exp.Expr) -> MergedColumn | None:
        if isinstance(node, exp.Column):
            return self.dimension(node)
        first = node.find(exp.Column)
        partial = None if first is None else self._partials.get(first.name)
        if partial is None:
            return None
        for function in AGGREGATES.values():
            column = self._read_by(function, partial, node)
            if column is not None:
                return column
        return None

    def _read_by(self, function: Aggregate, partial: Partial, node: exp.Expr) -> MergedColumn | None:
        """Return the column that the function reads back; None if the node is other SQL.

        The node must be the function's SQL over `partial` and other partials of the cube.
        """
        finish = function.finish(partial.type)
        if finish is None:
            return None
        found: dict[str, str] = {}
        template = shared_template(function.read(partial.type)).this
        accumulators = {each.name: each for each in function.accumulators()}
        if not self._matches(template, node, accumulators, found):
            return None
        return MergedColumn(finish, *found.values())

    def _matches(
        self, template: object, node: object, accumulators: Mapping[str, Accumulator], found: dict[str, str]
    ) -> bool:
        """Compare the tree with a template.

        Args:
            found: receives the partial of each place, in the order of the text.
        """
        if isinstance(template, exp.Placeholder):
            partial = self._partial(node, accumulators[str(template.this)])
            if partial is not None:
                found[str(template.this)] = partial.name
            return partial is not None
        if isinstance(template, list):
            return (
                isinstance(node, list)
                and len(template) == len(node)
                and all(
                    self._matches(*pair, accumulators, found) for pair in zip(template, node, strict=True)
                )
            )
        if not isinstance(template, exp.Expr):
            return template == node
        return type(template) is type(node) and all(
            self._matches(template.args.get(name), node.args.get(name), accumulators, found)
            for name in sorted(_used(template) | _used(node), reverse=True)
        )

    def dimension(self, node: exp.Expr) -> MergedColumn | None:
        if not isinstance(node, exp.Column) or node.table != self._alias:
            return None
        if node.name not in self._read.dimensions:
            return None
        kind = self._read.schema.dimension_type(node.name).kind
        return MergedColumn("value", node.name) if kind in _KEYS else None

    def _partial(self, node: object, accumulator: Accumulator) -> Partial | None:
        """Return the partial that the node is, if it adds up as an accumulator does or is one of its own."""
        if not isinstance(node, exp.Column) or node.table != self._alias:
            return None
        partial = self._partials.get(node.name)
        if partial is None or partial.accumulator.algebra != accumulator.algebra:
            return None
        return (
            partial if accumulator.algebra != "pick" or partial.accumulator.name == accumulator.name else None
        )


def _used(node: exp.Expr) -> set[str]:
    """Return the names of the node's arguments that are there."""
    return {name for name, value in node.args.items() if value}


def _only_source(select: exp.Select, read: CubeRead) -> str | None:
    """Return the alias of the cube, if nothing else is read."""
    source = select.args.get("from_")
    table = None if source is None else source.this
    if not isinstance(table, exp.Table) or table.name != read.relation or _used(table) - {"this", "alias"}:
        return None
    return str(table.alias_or_name)


def _groups_by_what_is_read(select: exp.Select, read: CubeRead, columns: _Columns) -> bool:
    group = select.args.get("group")
    if group is None:
        return not read.dimensions
    keys = [columns.dimension(key) for key in group.expressions]
    if _used(group) != {"expressions"}:
        return False
    return {key.source for key in keys if key is not None} == set(read.dimensions) and None not in keys


def _order_key(ordered: exp.Expr, named: dict[str, MergedColumn], columns: _Columns) -> MergedOrder | None:
    if not isinstance(ordered, exp.Ordered) or ordered.args.get("with_fill"):
        return None
    node = ordered.this
    is_alias = isinstance(node, exp.Column) and not node.table
    column = named.get(node.name.lower()) if is_alias else columns.find(node)
    if column is None:
        return None
    return MergedOrder(column, bool(ordered.args.get("desc")), bool(ordered.args.get("nulls_first")))


def _number(clause: exp.Expr | None) -> int | str | None:
    """Return a number or a parameter's name. Raises ValueError for anything else."""
    if clause is None:
        return None
    value = clause.args.get("expression")
    if _used(clause) != {"expression"}:
        raise ValueError("a clause that says more than a number")
    if isinstance(value, exp.Parameter):
        return str(value.name)
    if isinstance(value, exp.Literal) and not value.is_string:
        return int(str(value.this))
    raise ValueError("no number")
