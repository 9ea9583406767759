"""The work on a stored table's rows that its nodes do: partial aggregates, and the first rows of an order.

A SELECT over one stored table that aggregates, or is DISTINCT, reads partial aggregates. They are grouped by
every column that stands outside of an aggregate that nodes compute, so the engine runs the same statement
over groups in the place of rows:

| aggregate | over groups |
|---|---|
| `COUNT(*)`, `COUNT(c)`, `SUM(c)` | the sum of the partials |
| `MIN(c)`, `MAX(c)` | the same of the partials |
| `COUNT(e)` | the sum of the rows of groups where `e` is not NULL |
| DISTINCT, `MIN(e)`, `MAX(e)`, ANY_VALUE | the same of `e`: a row that counts once changes nothing |

Any other aggregate leaves the SELECT to the engine. A SELECT without aggregates and with a LIMIT reads the
first rows, if nodes can judge its whole WHERE and its ORDER BY names columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from rtolap.model.predicate import Predicate
from rtolap.model.stored.pushed import PartialColumn, PartialFunction, Partials, SortKey, TopRows
from rtolap.query.plan import NodeWork
from rtolap.query.sql.rules.context import Context
from rtolap.query.sql.rules.stored.scopes import TableScope, columns_read, conditions
from rtolap.query.sql.rules.templates import places, read_template

TOP_ROWS_MAX = 100_000  # of one tablet; of more, all are read
_CLAUSES = frozenset(
    ("with_", "expressions", "from_", "where", "group", "having", "order", "limit", "offset", "distinct")
)
_REPEATABLE = (exp.LogicalAnd, exp.LogicalOr, exp.ApproxDistinct, exp.AnyValue)
_COUNT = "CAST(COALESCE(SUM(:partial), 0) AS BIGINT)"
_MERGED: dict[PartialFunction, str] = {
    "rows": _COUNT,
    "count": _COUNT,
    "sum": "SUM(:partial)",
    "min": "MIN(:partial)",
    "max": "MAX(:partial)",
}
_WIDE_SUM = "CAST(SUM(:partial) AS HUGEINT)"  # the engine's type of a sum of whole numbers
_AVERAGE = "(CAST(SUM(:partial) AS DOUBLE) / NULLIF(COUNT(:partial), 0))"


class _NotPushed(Exception):
    """The reason for which the engine gets rows."""


@dataclass(frozen=True)
class Pushed:
    """The read of one SELECT.

    Attributes:
        columns: the columns that nodes read.
        filter: the condition of the rows.
    """

    columns: frozenset[str]
    filter: Predicate | None
    work: NodeWork


def averages_as_quotients(source: TableScope) -> None:
    """Write the averages of the table's columns as quotients, so that they are equal with partial aggregates
    and without."""
    for node in list(source.scope.find_all(exp.Avg)):
        column = _own_column(node.this, source)
        if column is None or not source.columns[column.name].is_numeric:
            continue
        if isinstance(node.parent, exp.Window) or isinstance(node.parent and node.parent.parent, exp.Window):
            continue
        _replace(node, _AVERAGE, column)


def push(source: TableScope, context: Context) -> Pushed | str:
    """Return the work of the table's nodes, and rewrite the SELECT accordingly; where there is none, return
    the reason and leave the SELECT as it is."""
    try:
        _check_whole(source)
        if _aggregates(source) or source.select.args.get("group") or source.select.args.get("distinct"):
            return _partials(source, context)
        return _top(source, context)
    except _NotPushed as reason:
        return str(reason)


def _check_whole(source: TableScope) -> None:
    select = source.select
    if len(source.scope.selected_sources) > 1 or select.args.get("joins"):
        raise _NotPushed("a join")
    other = sorted(name for name, value in select.args.items() if value and name not in _CLAUSES)
    if other:
        raise _NotPushed(f"{other[0].strip('_').upper()} in the SELECT")
    if source.scope.subquery_scopes:
        raise _NotPushed("a subquery in the SELECT")
    if any(source.scope.find_all(exp.Window)):
        raise _NotPushed("a window")
    if any(source.scope.find_all(exp.Rand)):
        raise _NotPushed("a random number")


def _aggregates(source: TableScope) -> list[exp.Expr]:
    lists = [node for node in source.scope.find_all(exp.Anonymous) if str(node.this).upper() == "LIST"]
    return [*source.scope.find_all(exp.AggFunc), *lists]


@dataclass
class _Columns:
    """The partials of a SELECT, each once."""

    by_key: dict[tuple[PartialFunction, str | None], PartialColumn] = field(default_factory=dict)

    def name(self, function: PartialFunction, column: str | None = None) -> str:
        partial = PartialColumn(f"{column or ''}__{function}", function, column)
        return self.by_key.setdefault((function, column), partial).name


def _partials(source: TableScope, context: Context) -> Pushed:
    select = source.select
    distinct = select.args.get("distinct")
    if distinct is not None and distinct.args.get("on"):
        raise _NotPushed("DISTINCT ON")
    found = _aggregates(source)
    columns = _Columns()
    replacements = [_replacement(node, source, columns) for node in found]
    where = conditions(source, context)
    columns_read(source)  # refuses unknown ones
    for node, replacement in zip(found, replacements, strict=True):
        if replacement is not None:
            _replace(node, *replacement)
    select.set("where", exp.Where(this=exp.and_(*where.left, copy=True)) if where.left else None)
    made = {each.name for each in columns.by_key.values()}
    named = {
        column.name
        for column in source.scope.find_all(exp.Column)
        if column.table == source.alias and column.name not in made
    }
    groups = tuple(name for name in source.columns if name in named | _unqualified(source))
    if not groups and not columns.by_key:
        columns.name("rows")  # so that there is a row where the table has one
    partials = Partials(groups, tuple(columns.by_key.values()))
    return Pushed(partials.sources, where.pushed, NodeWork(partials=partials))


def _unqualified(source: TableScope) -> set[str]:
    """Return columns that are named without the table, and are no alias that ORDER BY sorts by."""
    aliases = set(source.select.named_selects)
    return {
        column.name
        for column in source.scope.find_all(exp.Column)
        if not column.table
        and column.name in source.columns
        and not (column.name in aliases and isinstance(column.parent, exp.Ordered))
    }


def _replacement(node: exp.Expr, source: TableScope, columns: _Columns) -> tuple[str, exp.Expr] | None:
    """Return the engine's SQL over groups, and what it merges; None where the aggregate stays as it is."""
    argument = node.this
    if isinstance(node, exp.Anonymous) or node.expressions:
        raise _NotPushed(_named(node))
    if isinstance(argument, exp.Distinct) and isinstance(node, exp.Count | exp.Sum | exp.Min | exp.Max):
        return None
    column = _own_column(argument, source)
    kind = None if column is None else source.columns[column.name]
    match node:
        case exp.Count():
            if isinstance(argument, exp.Star | exp.Literal):
                return _COUNT, _partial(source, columns.name("rows"))
            if column is not None:
                return _COUNT, _partial(source, columns.name("count", column.name))
            present = exp.Is(this=exp.paren(argument.copy()), expression=exp.null()).not_()
            return _COUNT, exp.case().when(present, _partial(source, columns.name("rows")))
        case exp.Sum() if column is not None and kind is not None and kind.is_numeric:
            merged = _WIDE_SUM if kind.kind in ("int", "bigint") else _MERGED["sum"]
            return merged, _partial(source, columns.name("sum", column.name))
        case exp.Min() | exp.Max() if column is not None and kind is not None and kind.kind != "binary":
            function: PartialFunction = "min" if isinstance(node, exp.Min) else "max"
            return _MERGED[function], _partial(source, columns.name(function, column.name))
        case exp.Min() | exp.Max():
            return None
    if isinstance(node, _REPEATABLE):
        return None
    raise _NotPushed(_named(node))


def _named(node: exp.Expr) -> str:
    name = "a sketch" if isinstance(node, exp.Anonymous) else node.sql_name()  # type: ignore[attr-defined]
    return f"{name} of rows"


def _own_column(node: exp.Expr | None, source: TableScope) -> exp.Column | None:
    column = None if node is None else node.unnest()
    if isinstance(column, exp.Column) and column.table == source.alias and column.name in source.columns:
        return column
    return None


def _partial(source: TableScope, name: str) -> exp.Expr:
    return exp.column(name, table=source.alias, quoted=True)


def _replace(node: exp.Expr, sql: str, merged: exp.Expr) -> None:
    """Put the engine's SQL in the place of an aggregate. Its FILTER goes to each aggregate of the SQL."""
    target, condition = node, None
    if isinstance(node.parent, exp.Filter):
        target, condition = node.parent, node.parent.expression
    template = read_template(sql)
    for place in places(template):
        over = place.parent
        assert over is not None, "a place is inside an aggregate"
        place.replace(merged.copy())
        if condition is not None:
            over.replace(exp.Filter(this=over.copy(), expression=condition.copy()))
    target.replace(template.this.pop())


def _top(source: TableScope, context: Context) -> Pushed:
    select = source.select
    rows = _limit(select, context)
    if rows is None:
        raise _NotPushed("no aggregate, DISTINCT or LIMIT")
    if rows > TOP_ROWS_MAX:
        raise _NotPushed(f"a LIMIT above {TOP_ROWS_MAX}")
    if select.args.get("having"):
        raise _NotPushed("HAVING without groups")
    where = conditions(source, context)
    if where.left:
        raise _NotPushed("a condition that nodes do not judge")
    order = select.args.get("order")
    keys = tuple(_sort_key(each, source) for each in (order.expressions if order is not None else ()))
    top = TopRows(keys, rows)
    return Pushed(frozenset(columns_read(source)), where.pushed, NodeWork(top=top))


def _limit(select: exp.Select, context: Context) -> int | None:
    """Return how many rows LIMIT and OFFSET need; None if that is unknown, or all."""
    limit, offset = select.args.get("limit"), select.args.get("offset")
    if not isinstance(limit, exp.Limit) or limit.args.get("limit_options"):
        return None
    counts = [limit.expression, *([] if offset is None else [offset.expression])]
    total = 0
    for count in counts:
        try:
            value = context.fold(count)
        except LookupError:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            return None
        total += value
    return total


def _sort_key(ordered: exp.Expr, source: TableScope) -> SortKey:
    node = ordered.this
    if isinstance(node, exp.Column) and not node.table:  # an alias of the SELECT list
        named = [each.unalias() for each in source.select.expressions if each.alias_or_name == node.name]
        node = named[0] if len(named) == 1 else node
    column = _own_column(node, source)
    if not isinstance(ordered, exp.Ordered) or ordered.args.get("with_fill") or column is None:
        raise _NotPushed("an order by more than columns")
    if source.columns[column.name].kind == "binary":
        raise _NotPushed("an order by a sketch")
    descending = bool(ordered.args.get("desc"))
    nulls_first = ordered.args.get("nulls_first")
    return SortKey(column.name, descending, not descending if nulls_first is None else bool(nulls_first))
