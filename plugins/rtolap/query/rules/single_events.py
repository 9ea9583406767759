"""A cube keeps no single events: without aggregates only sets of dimension values can be asked."""

from __future__ import annotations

from sqlglot import exp

from rtolap.base.errors import QueryError
from rtolap.query.dialect import user_sql
from rtolap.query.rules.context import Context, CubeScope, cube_scopes, is_aggregated


def single_events(tree: exp.Expr, context: Context) -> exp.Expr:
    for cube in cube_scopes(tree, context):
        if not is_aggregated(cube):
            _check(cube)
    return tree


def _check(cube: CubeScope) -> None:
    select = cube.select
    if any(cube.scope.find_all(exp.Window)):
        raise QueryError(
            f"a window over the events of cube {cube.schema.cube.name}",
            expected="a window over an aggregated SELECT",
            action="aggregate in a subquery first",
        )
    parent = select.parent
    while isinstance(parent, exp.Subquery | exp.Paren):
        parent = parent.parent
    membership = isinstance(parent, exp.Exists | exp.In) and select.args.get("limit") is None
    if not membership and select.args.get("distinct") is None:
        raise QueryError(
            f"cube {cube.schema.cube.name} keeps no single events",
            expected="aggregates, GROUP BY or SELECT DISTINCT over its dimensions",
            found=user_sql(select)[:200],
        )
