"""Names that are both an alias and a column, and HAVING without groups, as MySQL takes them.

| where a bare name stands | MySQL | the engine |
|---|---|---|
| GROUP BY | the column of FROM, then the alias | the alias first |
| HAVING without groups and aggregates | a condition on rows; the alias, then the column | an error |

Everywhere else both agree.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, traverse_scope

from rtolap.query.information_schema import INFORMATION_PREFIX, information_columns
from rtolap.query.sql.rules.context import Context


def aliases(tree: exp.Expr, context: Context) -> exp.Expr:
    if not any(_is_concerned(select) for select in tree.find_all(exp.Select)):
        return tree
    for scope in traverse_scope(tree):
        select = scope.expression
        if not isinstance(select, exp.Select):
            continue
        _group_by_columns(scope, select, context)
        having = select.args.get("having")
        if having is not None and _has_plain_rows(scope, select, context):
            select.set("having", None)
            select.where(_with_aliases(having.this, select), append=True, copy=False)
    return tree


def _is_concerned(select: exp.Select) -> bool:
    return select.args.get("having") is not None or bool(_shadowing(select))


def _group_by_columns(scope: Scope, select: exp.Select, context: Context) -> None:
    """Give a bare name in GROUP BY that is an alias of something else the table whose column it is."""
    for column in _shadowing(select):
        owners = [
            alias for alias, known in _source_columns(scope, context).items() if column.name.lower() in known
        ]
        if len(owners) == 1:
            column.set("table", exp.to_identifier(owners[0], quoted=True))


def _shadowing(select: exp.Select) -> list[exp.Column]:
    """Return the bare names in GROUP BY that are an alias of something else."""
    group = select.args.get("group")
    if group is None:
        return []
    aliases = {name for name, meant in _aliased(select).items() if not _is_column(meant, name)}
    return [
        key
        for key in group.expressions
        if isinstance(key, exp.Column) and not key.table and key.name.lower() in aliases
    ]


def _source_columns(scope: Scope, context: Context) -> dict[str, set[str]]:
    """Return the columns, in lower case, of each source of a SELECT by its alias."""
    columns_by_source: dict[str, set[str]] = {}
    for alias, (_, source) in scope.selected_sources.items():
        if isinstance(source, exp.Table):
            columns_by_source[alias] = {name.lower() for name in _relation_columns(source.name, context)}
        elif isinstance(source.expression, exp.Query):
            columns_by_source[alias] = {name.lower() for name in source.expression.named_selects}
    return columns_by_source


def _relation_columns(relation: str, context: Context) -> Collection[str]:
    """Return the columns of a relation as the rules call it, a table of information_schema too."""
    if relation in context.catalogue.all_names():
        return context.catalogue.columns(relation)
    return information_columns(relation.removeprefix(INFORMATION_PREFIX))


def _has_plain_rows(scope: Scope, select: exp.Select, context: Context) -> bool:
    """Return whether the rows are plain: neither groups nor aggregates. A cube's rows are always groups."""
    sources = [source for _, source in scope.selected_sources.values()]
    if any(isinstance(each, exp.Table) and each.name in context.catalogue.cubes for each in sources):
        return False
    return select.args.get("group") is None and not any(scope.find_all(exp.AggFunc, exp.Window))


def _with_aliases(condition: exp.Expr, select: exp.Select) -> exp.Expr:
    meant = _aliased(select)
    written = condition.copy()
    for column in list(written.find_all(exp.Column)):
        if not column.table and column.name.lower() in meant and column.find_ancestor(exp.Query) is None:
            expression = exp.paren(meant[column.name.lower()].copy(), copy=False)
            if column is written:
                return expression
            column.replace(expression)
    return written


def _aliased(select: exp.Select) -> dict[str, exp.Expr]:
    """Return the expression of each alias, which is in lower case."""
    return {
        expression.alias.lower(): expression.this
        for expression in select.expressions
        if isinstance(expression, exp.Alias)
    }


def _is_column(meant: exp.Expr, name: str) -> bool:
    return isinstance(meant, exp.Column) and meant.name.lower() == name
