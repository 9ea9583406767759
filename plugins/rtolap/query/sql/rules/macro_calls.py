"""Calls of the engine's macros, as rules write them."""

from __future__ import annotations

from sqlglot import exp

from rtolap.query.sql.dialect import MACRO_PREFIX


def macro(name: str, *arguments: exp.Expr | None) -> exp.Expr:
    """Return a call of `mysql_<name>` of `macros.MACROS` over copies of the arguments."""
    given = [argument.copy() for argument in arguments if argument is not None]
    return exp.Anonymous(this=f"{MACRO_PREFIX}{name}", expressions=given)
