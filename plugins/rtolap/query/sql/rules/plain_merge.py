"""Statements whose rows are the merged partials of one cube: noted for `query.cubes.merged_answer`.

What is recognised: one SELECT over one cube; a GROUP BY of exactly the dimensions that are read, or none;
columns and keys of ORDER BY that are a dimension, COUNT, SUM, AVG, MIN, MAX or an estimate of distinct values
as `aggregates` writes them; LIMIT and OFFSET. Whatever else a statement holds leaves it to the engine.
"""

from __future__ import annotations

from sqlglot import exp

from rtolap.model.cube import Partial
from rtolap.query.plan import CubeRead, MergedColumn, MergedOrder, PlainMerge
from rtolap.query.sketches import HLL_ESTIMATE
from rtolap.query.sql.rules.context import Context

_CLAUSES = frozenset(("expressions", "from_", "group", "order", "limit", "offset"))
_KEYS = frozenset(("string", "boolean", "int", "bigint", "decimal", "date", "timestamp"))  # compared alike
_SUMS = frozenset(("decimal", "double"))  # in types that the engine keeps


def plain_merge(tree: exp.Expr, context: Context) -> exp.Expr:
    """The tree stays as it is."""
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
        match node:
            case exp.Column():
                return self.dimension(node)
            case exp.Min() | exp.Max():
                partial = self._partial(node.this, node.key)
                is_whole = partial is not None and not node.expressions
                return MergedColumn("value", partial.name) if partial is not None and is_whole else None
            case exp.Sum():
                partial = self._partial(node.this, "sum")
                is_sum = partial is not None and partial.type.kind in _SUMS
                return MergedColumn("sum", partial.name) if partial is not None and is_sum else None
            case exp.Cast() if node.to.this is exp.DType.BIGINT:
                return self._whole_number(node.this)
            case exp.Paren(this=exp.Div() as quotient):
                return self._mean(quotient)
        return None

    def dimension(self, node: exp.Expr) -> MergedColumn | None:
        if not isinstance(node, exp.Column) or node.table != self._alias:
            return None
        if node.name not in self._read.dimensions:
            return None
        kind = self._read.schema.dimension_type(node.name).kind
        return MergedColumn("value", node.name) if kind in _KEYS else None

    def _whole_number(self, node: exp.Expr) -> MergedColumn | None:
        """COUNT(…), the sum of a 32-bit column, or an estimate: what is cast to BIGINT."""
        match node:
            case exp.Coalesce(this=exp.Sum() as total) if _is_zero(node.expressions):
                number = self._number(total)
                return None if number is None else MergedColumn("count", number)
            case exp.Sum():
                number = self._number(node)
                return None if number is None else MergedColumn("value", number)
            case exp.Anonymous(expressions=[exp.Anonymous(expressions=[column])]):
                sketch = self._partial(column, "hll")
                is_estimate = str(node.this) == HLL_ESTIMATE and str(node.expressions[0].this) == "LIST"
                return MergedColumn("distinct", sketch.name) if sketch is not None and is_estimate else None
        return None

    def _mean(self, quotient: exp.Div) -> MergedColumn | None:
        total, divisor = quotient.this, quotient.expression
        if not isinstance(total, exp.Cast) or total.to.this is not exp.DType.DOUBLE:
            return None
        if not isinstance(divisor, exp.Nullif) or not _is_zero([divisor.expression]):
            return None
        summed = self._partial(total.this.this, "sum") if isinstance(total.this, exp.Sum) else None
        count = self._number(divisor.this)
        if summed is None or count is None or summed.type.kind not in (*_SUMS, "bigint"):
            return None
        return MergedColumn("mean", summed.name, count)

    def _number(self, node: exp.Expr) -> str | None:
        """The partial that is summed, if it is a 64-bit number."""
        partial = self._partial(node.this, "sum") if isinstance(node, exp.Sum) else None
        return None if partial is None or partial.type.kind != "bigint" else partial.name

    def _partial(self, node: object, operation: str) -> Partial | None:
        if not isinstance(node, exp.Column) or node.table != self._alias:
            return None
        partial = self._partials.get(node.name)
        return None if partial is None or partial.op != operation else partial


def _used(node: exp.Expr) -> set[str]:
    """The names of the node's arguments that are there."""
    return {name for name, value in node.args.items() if value}


def _only_source(select: exp.Select, read: CubeRead) -> str | None:
    """The alias of the cube, if nothing else is read."""
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
    """Raises ValueError for what is neither a number nor a parameter."""
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


def _is_zero(expressions: list[exp.Expr]) -> bool:
    return len(expressions) == 1 and isinstance(expressions[0], exp.Literal) and expressions[0].this == "0"
