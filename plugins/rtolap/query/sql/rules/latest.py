"""Roll-up rows with a LIMIT whose latest groups are answer enough: noted for `query.latest`."""

from __future__ import annotations

from sqlglot import exp

from rtolap.query.plan import LatestRows
from rtolap.query.sql.rules.context import Context, CubeScope, cube_scopes

ROWS_MAX = 10_000  # a longer result is read as a whole, and streamed


def latest(tree: exp.Expr, context: Context) -> exp.Expr:
    """The tree stays as it is. Any order but the latest first, and any condition, leave it alone too."""
    limit = tree.args.get("limit")
    cubes = list(cube_scopes(tree, context))
    if not context.rolls_up or not isinstance(limit, exp.Limit) or len(cubes) != 1 or cubes[0].nullable:
        return tree
    key = _time_key(cubes[0])
    rows = _whole(limit.expression, context)  # an OFFSET has been passed when they are counted
    if key is not None and rows is not None and 0 < rows <= ROWS_MAX:
        context.latest = LatestRows(key, rows)
    return tree


def _time_key(cube: CubeScope) -> str | None:
    """The finest time dimension among the keys; with an ORDER BY, the one that it begins with, descending."""
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
