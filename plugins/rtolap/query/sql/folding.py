"""Constant expressions of a statement, computed by the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from rtolap.query.sql.dialect import engine_sql

ValueOf = Callable[[str, Mapping[str, object]], object]  # SQL of one value, and its parameters → the value


def fold(value_of: ValueOf, expression: exp.Expr, parameters: Mapping[str, object]) -> object:
    """Return the value of a constant expression. LookupError if it holds a parameter without a value."""
    if isinstance(expression, exp.Literal):
        return expression.to_py()
    if isinstance(expression, exp.Parameter):
        return parameters[str(expression.name)]
    needed = {str(node.name) for node in expression.find_all(exp.Parameter)}
    values = {name: parameters[name] for name in needed}
    return value_of(f"SELECT {engine_sql(expression)}", values)
