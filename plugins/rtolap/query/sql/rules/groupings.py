"""GROUPING(…): only of what the SELECT groups by."""

from __future__ import annotations

from sqlglot import exp

from rtolap.base.errors import QueryError
from rtolap.query.sql.dialect import user_sql
from rtolap.query.sql.rules.context import Context


def groupings(tree: exp.Expr, context: Context) -> exp.Expr:
    """Check the arguments of GROUPING. Raises QueryError for one that is no key of its SELECT."""
    for node in tree.find_all(exp.Grouping):
        select = node.find_ancestor(exp.Select)
        keys = [] if select is None else _keys(select.args.get("group"))
        for argument in node.expressions:
            if argument not in keys:
                raise QueryError(
                    f"{user_sql(node)} needs an expression of GROUP BY",
                    expected=", ".join(map(user_sql, keys)) or "a GROUP BY",
                    found=user_sql(argument),
                )
    return tree


def _keys(group: exp.Expr | None) -> list[exp.Expr]:
    """Return the keys, those of ROLLUP, CUBE and GROUPING SETS too."""
    if group is None:
        return []
    waiting: list[exp.Expr] = [group]
    keys: list[exp.Expr] = []
    while waiting:
        node = waiting.pop()
        if isinstance(node, exp.Group | exp.Rollup | exp.Cube | exp.GroupingSets | exp.Tuple | exp.Paren):
            waiting += reversed(list(node.iter_expressions()))
        elif node not in keys:
            keys.append(node)
    return keys
