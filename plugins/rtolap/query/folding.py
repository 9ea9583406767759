"""Constant expressions of a statement. Not part of `session`: a worker process gets texts, and starts sooner
without a parser of its own.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from rtolap.query.session import Session
from rtolap.query.sql.dialect import engine_sql


def fold(session: Session, expression: exp.Expr, parameters: Mapping[str, object]) -> object:
    """The value of a constant expression. LookupError if it holds a parameter without a value."""
    if isinstance(expression, exp.Literal):
        return expression.to_py()
    if isinstance(expression, exp.Parameter):
        return parameters[str(expression.name)]
    needed = {str(node.name) for node in expression.find_all(exp.Parameter)}
    values = {name: parameters[name] for name in needed}
    return session.value(f"SELECT {engine_sql(expression)}", values)
