"""The SQL of an aggregate function as a tree, with a place for each of its accumulators."""

from __future__ import annotations

from functools import lru_cache

from sqlglot import exp, parse_one


def read_template(sql: str) -> exp.Expr:
    """Return the tree of `Aggregate.read` in parentheses, which the caller may change."""
    return shared_template(sql).copy()


@lru_cache(maxsize=64)
def shared_template(sql: str) -> exp.Expr:
    """Return a tree that all callers share and none may change."""
    # Inside parentheses, so that every node of it has a parent and can be replaced.
    whole = exp.paren(parse_one(sql, dialect="duckdb"), copy=False)
    for lists in list(whole.find_all(exp.ArrayAgg)):  # would be written with a filter of its own
        lists.replace(exp.Anonymous(this="LIST", expressions=[lists.this]))
    return whole


def places(template: exp.Expr) -> list[exp.Placeholder]:
    """Return the places of accumulators, each inside the engine's aggregate that merges it."""
    return list(template.find_all(exp.Placeholder))
