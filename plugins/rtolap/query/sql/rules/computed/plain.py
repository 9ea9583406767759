"""Expressions in one spelling, so that a statement's and a declared one can be compared as trees.

Parentheses, tables and the case of names say nothing. `IF(c, x, NULL)`, `IF(c, x)` and `CASE WHEN c THEN x
ELSE NULL END` are `CASE WHEN c THEN x END`. A computed column is what it is computed of.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import sqlglot
from sqlglot import exp

from rtolap.query.sql.dialect import RtolapSql


@lru_cache(maxsize=512)
def parsed(text: str) -> exp.Expr:
    """Return a declared expression in its one spelling. It is shared: nobody changes it."""
    return plain(sqlglot.parse_one(text, dialect=RtolapSql), {})


def plain(node: exp.Expr, computed: Mapping[str, exp.Expr]) -> exp.Expr:
    """Return a copy in its one spelling. `computed`: the plain expressions of columns, by name."""
    holder = exp.paren(node.copy())
    for each in [*holder.this.walk(bfs=False)][::-1]:  # operands before what they are operands of
        _spell(each, computed)
    spelled: exp.Expr = holder.this.pop()
    return spelled


def case_of(condition: exp.Expr, value: exp.Expr) -> exp.Case:
    """Return the CASE that has the value where the condition holds; the operands become its own."""
    return exp.Case(ifs=[exp.If(this=condition, true=value)])


def _spell(node: exp.Expr, computed: Mapping[str, exp.Expr]) -> None:
    if isinstance(node, exp.Column):
        name = node.name.lower()
        node.replace(computed[name].copy() if name in computed else exp.column(name))
    elif isinstance(node, exp.Paren):
        node.replace(node.this)
    elif isinstance(node, exp.If) and not is_branch(node):
        case = case_of(node.this, node.args["true"])
        case.set("default", _of_value(node.args.get("false")))
        node.replace(case)
    elif isinstance(node, exp.Case):
        node.set("default", _of_value(node.args.get("default")))


def _of_value(default: exp.Expr | None) -> exp.Expr | None:
    """Return what stands behind ELSE, and nothing for NULL."""
    return None if isinstance(default, exp.Null) else default


def is_branch(node: exp.Expr) -> bool:
    """Tell whether the node is a WHEN of a CASE, which is an IF to the parser."""
    return isinstance(node.parent, exp.Case) and node.arg_key == "ifs"
