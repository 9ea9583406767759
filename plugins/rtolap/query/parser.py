"""SQL text → one SELECT tree, or a clear refusal."""

from __future__ import annotations

import re
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from rtolap.base.errors import QueryError
from rtolap.query.dialect import RtolapSql

STATEMENT_BYTES_MAX = 1 << 20  # a longer text is a mistake; parsing is the one unbounded step of ours
_EXPLAIN = re.compile(r"\s*(explain|desc|describe)\s+(?=select\b|with\b|\()", re.IGNORECASE)
_MARKUP = re.compile(r"\x1b\[\d+m")


@dataclass(frozen=True)
class Statement:
    """One query. Parameters are named `p1`, `p2`, … in the order of their `?`, or as `:name` names them."""

    tree: exp.Expression
    explain: bool
    parameters: tuple[str, ...]


def parse(sql: str) -> Statement:
    """Raises QueryError for bad SQL, several statements, or anything but a query."""
    if len(sql) > STATEMENT_BYTES_MAX:
        raise QueryError("the statement is too long", expected=f"at most {STATEMENT_BYTES_MAX} characters")
    explain = _EXPLAIN.match(sql)
    body = sql[explain.end() :] if explain else sql
    try:
        trees = [tree for tree in sqlglot.parse(body, dialect=RtolapSql) if tree is not None]
    except (SqlglotError, RecursionError) as error:
        text = _MARKUP.sub("", str(error).splitlines()[0]) if str(error) else "too deeply nested"
        raise QueryError(f"bad SQL: {text}") from error
    if len(trees) != 1:
        raise QueryError("bad SQL", expected="one statement", found=f"{len(trees)} statements")
    tree = trees[0]
    if not isinstance(tree, exp.Query) or isinstance(tree, exp.Table):
        raise QueryError(
            "unsupported statement", expected="SELECT, WITH, UNION or EXPLAIN SELECT", found=tree.key.upper()
        )
    return Statement(tree, explain is not None, _name_parameters(tree))


def _name_parameters(tree: exp.Expression) -> tuple[str, ...]:
    """Replace `?` by `$p1`, …, left to right, so that moving or dropping one does not shift the others."""
    names: dict[str, None] = {}
    # Depth first is the order of the text for everything but LIMIT a, b: sort by what the parser met.
    for count, node in enumerate(list(tree.find_all(exp.Placeholder, bfs=False)), start=1):
        name = str(node.this) if node.this else f"p{count}"
        names[name] = None
        node.replace(exp.Parameter(this=exp.var(name)))
    return tuple(names)
