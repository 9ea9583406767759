"""Spellings of filtered measures, in the words of the columns that the cube keeps of them.

With f for the column that has the values of x where c holds, and p for the one that is 1 there:

| asked | is |
|---|---|
| `SUM(x) FILTER (WHERE c)`, and any other aggregate | `SUM(f)` |
| `COUNT(*) FILTER (WHERE c)`, `COUNT(CASE WHEN c THEN 1 END)` | `COUNT(p)` |
| `SUM(CASE WHEN c THEN 1 END)` | `NULLIF(COUNT(p), 0)` |
| `SUM(CASE WHEN c THEN 1 ELSE 0 END)` | `CASE WHEN COUNT(*) > 0 THEN COUNT(p) END` |
| `AVG(CASE WHEN c THEN 1 ELSE 0 END)` | `COUNT(p) / NULLIF(COUNT(*), 0)` |
| `SUM(CASE WHEN c THEN x ELSE 0 END)` | `COALESCE(SUM(f), CASE WHEN COUNT(*) > COUNT(p) THEN 0 END)` |

The last is NULL where c holds of all events and x of none is known, as in SQL. `SUM(CASE WHEN c THEN x END)`
needs nothing here: its CASE is the expression of f.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from rtolap.aggregates.function import Aggregate
from rtolap.aggregates.registry import BY_SQL_KEY, COUNT_DISTINCT
from rtolap.query.sql.rules.computed.plain import case_of

Find = Callable[[exp.Expr, exp.Expr, Aggregate | None], exp.Column | None]  # see `columns`
_COUNT, _SUM = BY_SQL_KEY["count"], BY_SQL_KEY["sum"]


class _Choice(NamedTuple):
    """CASE WHEN condition THEN value ELSE otherwise END."""

    condition: exp.Expr
    value: exp.Expr
    otherwise: exp.Expr | None


def function_of(node: exp.Expr | None) -> Aggregate | None:
    """Return the function that a call of the statement asks for."""
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Distinct):
        return COUNT_DISTINCT
    return None if node is None else BY_SQL_KEY.get(node.key)


def put_filtered(scope: Scope, find: Find) -> None:
    """Put the columns of filtered measures in the place of their other spellings."""
    for node in list(scope.find_all(exp.AggFunc)):
        outer = node.parent if isinstance(node.parent, exp.Filter) else node
        if isinstance(outer.parent, exp.Window):
            continue
        if isinstance(outer, exp.Filter) and _put_filter(outer, node, find):
            outer = node
        choice = _choice(node.this)
        if choice is not None:
            _put_choice(outer, node, choice, find)


def _put_filter(outer: exp.Filter, node: exp.Expr, find: Find) -> bool:
    """Take the condition of FILTER into the argument, if the cube keeps that; tell whether it does."""
    condition, argument = outer.expression.this, node.this
    if isinstance(node, exp.Count) and (isinstance(argument, exp.Star) or _is_given(argument)):
        argument, value = node, _number(1)
    else:
        if isinstance(argument, exp.Distinct) and len(argument.expressions) == 1:
            (argument,) = argument.expressions
        if not isinstance(argument, exp.Expr):
            return False
        value = argument.copy()
    column = find(case_of(condition.copy(), value), node, function_of(node))
    if column is None:
        return False
    if argument is node:
        node.set("this", column)
    else:
        argument.replace(column)
    outer.replace(node)
    return True


def _put_choice(outer: exp.Expr, node: exp.Expr, choice: _Choice, find: Find) -> None:
    """Replace an aggregate of a CASE; `outer` is the aggregate, or the FILTER around it."""
    passing = find(case_of(choice.condition.copy(), _number(1)), node, _COUNT)
    if passing is None:
        return

    def over(aggregate: exp.Expr) -> exp.Expr:
        if not isinstance(outer, exp.Filter):
            return aggregate
        return exp.Filter(this=aggregate, expression=outer.expression.copy())

    def passed() -> exp.Expr:
        return over(exp.Count(this=passing.copy(), big_int=True))

    events = over(exp.Count(this=exp.Star(), big_int=True))
    if isinstance(node, exp.Count) and _is_given(choice.value) and choice.otherwise is None:
        outer.replace(passed())
    elif isinstance(node, exp.Avg) and _is_number(choice.value, 1) and _is_number(choice.otherwise, 0):
        some = exp.Nullif(this=events, expression=_number(0))
        outer.replace(exp.paren(exp.Div(this=passed(), expression=some), copy=False))
    elif not isinstance(node, exp.Sum) or not (choice.otherwise is None or _is_number(choice.otherwise, 0)):
        return
    elif _is_number(choice.value, 1):
        if choice.otherwise is None:
            outer.replace(exp.Nullif(this=passed(), expression=_number(0)))
        else:
            is_any = exp.GT(this=events, expression=_number(0))
            outer.replace(case_of(is_any, passed()))
    elif choice.otherwise is not None:
        column = find(case_of(choice.condition.copy(), choice.value.copy()), node, _SUM)
        if column is not None:
            others = exp.GT(this=events, expression=passed())
            total = over(exp.Sum(this=column))
            outer.replace(exp.Coalesce(this=total, expressions=[case_of(others, _number(0))]))


def _choice(argument: object) -> _Choice | None:
    node = argument.unnest() if isinstance(argument, exp.Expr) else None
    if isinstance(node, exp.If):
        condition, value, otherwise = node.this, node.args["true"], node.args.get("false")
    elif isinstance(node, exp.Case) and node.this is None and len(node.args["ifs"]) == 1:
        (branch,) = node.args["ifs"]
        condition, value, otherwise = branch.this, branch.args["true"], node.args.get("default")
    else:
        return None
    return _Choice(condition, value.unnest(), None if isinstance(otherwise, exp.Null) else otherwise)


def _number(value: int) -> exp.Expr:
    return exp.Literal.number(value)


def _is_number(node: exp.Expr | None, value: int) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and str(node.this) == str(value)


def _is_given(node: object) -> bool:
    """Tell whether the node is a written value other than NULL."""
    return isinstance(node, exp.Literal | exp.Boolean)
