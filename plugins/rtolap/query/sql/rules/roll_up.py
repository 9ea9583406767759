"""A cube keeps no single events. An outermost SELECT without aggregates shows roll-up rows instead.

    SELECT carrier, delay FROM flights      one row a carrier: carrier, SUM(delay)
    SELECT * FROM flights LIMIT 10          one row a combination of all dimensions: these, COUNT(*), and
                                            every declared measure, named as it is declared

The keys are all expressions of dimensions (and of lookups) in the SELECT list; a bare measure column stands
for the first of SUM, MAX, MIN, APPROX_COUNT_DISTINCT and COUNT that the cube keeps of it.

Inside a subquery, a CTE or a UNION the same text is an error: a query that counts or averages the rows of
`(SELECT carrier, delay FROM flights)` means events, and roll-up rows would silently be something else.
There, sets of dimension values can be asked (DISTINCT, IN, EXISTS, ANY, ALL, UNION without ALL).
"""

from __future__ import annotations

from sqlglot import exp

from rtolap.aggregates.function import Aggregate
from rtolap.aggregates.registry import AGGREGATES
from rtolap.base.errors import QueryError, UnsupportedSql
from rtolap.model.cube import Measure
from rtolap.query.plan import LatestRows
from rtolap.query.sql.dialect import RtolapSql, user_sql
from rtolap.query.sql.rules.context import Context, CubeScope, cube_scopes, is_aggregated, joined_cubes
from rtolap.query.sql.rules.cut_texts import is_joined

_SHOWN = sorted(AGGREGATES.values(), key=lambda function: function.shown)
_LATEST_ROWS_MAX = 10_000  # a longer result is read as a whole, and streamed


def stars(tree: exp.Expr, context: Context) -> exp.Expr:
    """Note if the statement shows roll-up rows, and expand its stars. Runs before names are resolved."""
    for cubes in joined_cubes(tree, context):
        if cubes[0].select is tree and _is_plain(cubes[0]):
            if len(cubes) > 1:
                joined = " and ".join(each.schema.cube.name for each in cubes)
                raise QueryError(
                    f"one SELECT shows roll-up rows of {joined}",
                    expected="aggregates, GROUP BY or SELECT DISTINCT over a join of cubes",
                    action="show roll-up rows of one cube, or group by the columns",
                )
            context.rolls_up = True
            context.tree_changed()
            _expand(cubes[0])
    return tree


def roll_up(tree: exp.Expr, context: Context) -> exp.Expr:
    """Group by columns that are no measures, and aggregate measures. Runs after names are resolved."""
    for cube in list(cube_scopes(tree, context)):
        if cube.select is tree and context.rolls_up:
            _check_windows(cube)
            context.tree_changed()
            _group(cube)
        elif _is_plain(cube):
            _check_windows(cube)
            _check_membership(cube)
    return tree


def _is_plain(cube: CubeScope) -> bool:
    return not is_aggregated(cube) and cube.select.args.get("distinct") is None


def _expand(cube: CubeScope) -> None:
    select = cube.select
    projections: list[exp.Expr] = []
    for projection in select.expressions:
        if isinstance(projection, exp.Star):
            if any(join.args.get("using") for join in select.args.get("joins") or ()):
                raise UnsupportedSql(
                    "unsupported SQL: * over a join with USING", action="name the columns, or join with ON"
                )
            for alias in cube.scope.selected_sources:
                projections += _columns(cube) if alias == cube.alias else [_all_of(alias)]
        elif isinstance(projection, exp.Column) and isinstance(projection.this, exp.Star):
            projections += _columns(cube) if projection.table == cube.alias else [projection]
        else:
            projections.append(projection)
    select.set("expressions", projections)


def _all_of(alias: str) -> exp.Expr:
    return exp.Column(this=exp.Star(), table=exp.to_identifier(alias, quoted=True))


def _columns(cube: CubeScope) -> list[exp.Expr]:
    shown: dict[str, exp.Expr] = {name: cube.column(name) for name in cube.schema.cube.all_dimensions}
    for measure in (Measure("count"), *cube.schema.cube.measures):
        argument = exp.Star() if measure.source is None else cube.column(measure.source)
        function = AGGREGATES[measure.function]
        label = function.call(measure.source or "*")
        shown.setdefault(label, exp.alias_(_call(function, argument), label, quoted=True))
    return list(shown.values())


def _call(function: Aggregate, argument: exp.Expr) -> exp.Expr:
    if function.in_count:
        return exp.Count(this=exp.Distinct(expressions=[argument]))
    if function.is_distinct:
        argument = exp.Distinct(expressions=[argument])
    return exp.func(function.title, argument, dialect=RtolapSql)


def _group(cube: CubeScope) -> None:
    select = cube.select
    keys: list[exp.Expr] = []
    uses_cube = False
    for projection in select.expressions:
        value = projection.unalias()
        if value.find(exp.Query):
            raise UnsupportedSql(
                f"unsupported SQL: a subquery beside roll-up rows: {user_sql(projection)[:200]}",
                action="aggregate the cube in a subquery of its own and join",
            )
        columns = list(value.find_all(exp.Column))
        uses_cube |= any(column.table == cube.alias for column in columns)
        if value.find(exp.AggFunc):
            continue  # written out of a star
        measures = [column for column in columns if _is_shown_measure(column, cube)]
        if isinstance(value, exp.Column) and measures:
            value.replace(_shown(value, cube))
        elif measures:
            raise QueryError(
                f"{user_sql(projection)[:200]}: cube {cube.schema.cube.name} keeps no single events",
                expected="a measure's column by itself, or inside an aggregate",
                action=f"aggregate it, as in SUM({user_sql(value)[:100]})",
            )
        elif columns:
            keys.append(value.copy())
    if not uses_cube:
        if not _shows_nothing(select):
            raise _no_events(cube)
        keys.append(cube.column(cube.schema.cube.all_dimensions[0]))  # a client looks whether it may ask
    _order(cube, {column.sql() for key in keys for column in key.find_all(exp.Column)})
    if keys:
        select.set("group", exp.Group(expressions=keys))


def _shows_nothing(select: exp.Select) -> bool:
    limit = select.args.get("limit")
    count = limit.expression if isinstance(limit, exp.Limit) else None
    return isinstance(count, exp.Literal) and str(count.this) == "0"


def _order(cube: CubeScope, keys: set[str]) -> None:
    order = cube.select.args.get("order")
    for column in list(order.find_all(exp.Column)) if order is not None else ():
        if _is_shown_measure(column, cube):
            column.replace(_shown(column, cube))
        elif column.table and column.sql() not in keys:
            raise QueryError(
                f"roll-up rows cannot be ordered by {user_sql(column)}",
                expected="a column of the SELECT list",
            )


def _is_shown_measure(column: exp.Column, cube: CubeScope) -> bool:
    """Return whether a measure is shown. The event time is none: it reads through a derived dimension."""
    return cube.is_measure(column) and column.name != cube.schema.table.time.column


def _shown(column: exp.Column, cube: CubeScope) -> exp.Expr:
    columns = {partial.name for partial in cube.schema.partials}
    for function in _SHOWN:
        if columns.issuperset(each.column_name(column.name) for each in function.accumulators()):
            return _call(function, column.copy())
    raise AssertionError(f"{column.name} is the column of a measure")


def _check_windows(cube: CubeScope) -> None:
    if any(cube.scope.find_all(exp.Window)):
        raise QueryError(
            f"a window over the events of cube {cube.schema.cube.name}",
            expected="a window over an aggregated SELECT",
            action="aggregate in a subquery first",
        )


def _check_membership(cube: CubeScope) -> None:
    """Refuse rows of a cube, except where it is asked which values exist and not how often: within IN,
    EXISTS, ANY and ALL, and as a side of UNION, INTERSECT and EXCEPT without ALL."""
    parent = cube.select.parent
    while isinstance(parent, exp.Subquery | exp.Paren):
        parent = parent.parent
    asks_for_values = isinstance(parent, exp.Exists | exp.In | exp.Any | exp.All) or (
        isinstance(parent, exp.SetOperation) and bool(parent.args.get("distinct"))
    )
    if not asks_for_values or cube.select.args.get("limit") is not None:
        raise _no_events(cube)


def _no_events(cube: CubeScope) -> QueryError:
    return QueryError(
        f"cube {cube.schema.cube.name} keeps no single events",
        expected="aggregates, GROUP BY or SELECT DISTINCT over its dimensions; columns without aggregates in "
        "the outermost SELECT only",
        found=user_sql(cube.select)[:200],
    )


def latest(tree: exp.Expr, context: Context) -> exp.Expr:
    """Note roll-up rows with a LIMIT whose latest groups are answer enough, for `query.cubes.planner`.

    The tree stays as it is. Any order but the latest first, and any condition, leave it alone too.
    """
    limit = tree.args.get("limit")
    if not context.rolls_up or not isinstance(limit, exp.Limit) or is_joined(tree):
        return tree
    cubes = list(cube_scopes(tree, context))
    if len(cubes) != 1 or cubes[0].nullable:
        return tree
    key = _time_key(cubes[0])
    rows = _whole(limit.expression, context)  # an OFFSET has been passed when they are counted
    if key is not None and rows is not None and 0 < rows <= _LATEST_ROWS_MAX:
        context.latest = LatestRows(key, rows)
    return tree


def _time_key(cube: CubeScope) -> str | None:
    """Return the finest time dimension among the keys; with an ORDER BY, the one that it begins with,
    descending.
    """
    group, order = cube.select.args.get("group"), cube.select.args.get("order")
    keys = {key.name for key in group.expressions if isinstance(key, exp.Column)} if group else set()
    fitting = [name for name in cube.schema.cube.time_columns if name in keys]
    if order is None:
        return fitting[0] if fitting else None
    first = order.expressions[0]
    if not isinstance(first.this, exp.Column) or not first.args.get("desc"):
        return None
    name = first.this.name
    if not first.this.table:  # an alias of the SELECT list
        named = [p.unalias() for p in cube.select.expressions if p.alias_or_name == name]
        if len(named) != 1 or not isinstance(named[0], exp.Column):
            return None
        name = named[0].name
    return name if name in fitting else None


def _whole(count: exp.Expr, context: Context) -> int | None:
    try:
        value = context.fold(count)
    except LookupError:
        return None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
