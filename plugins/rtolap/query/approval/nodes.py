"""The kinds of nodes, the functions and the bare words that a statement may hold, as its author wrote it.

A tree has values (quoted wherever they are written) and words, which are written as they are: units,
modifiers, names of functions. A word is letters, digits and underscores, or the statement is refused.
"""

from __future__ import annotations

import re

from sqlglot import exp

from rtolap.base.errors import QueryError, SqlSyntaxError, UnsupportedSql
from rtolap.query.approval.own_functions import OWN_NODES
from rtolap.query.approval.value_lists import ValueList
from rtolap.query.functions.names import unknown_function
from rtolap.query.functions.table import NODE_KEYS, ROWS

NODES_MAX = 60_000
NESTING_MAX = 80  # of what stands within each other: the rules look at all below a node, again and again
CHAIN_MAX = 400  # terms of `a AND b AND …`: what the rules take grows with the square of it

_WORDS = re.compile(r"[\w ]*")
_CHAINED = (exp.And, exp.Or, exp.Union, exp.DPipe, exp.Add)
_QUOTED = (exp.Literal, exp.Identifier, exp.National)
_NEEDED: dict[type[exp.Expr], tuple[str, ...]] = {  # which the parser does without
    exp.Replace: ("replacement",),
}
_NAMED = frozenset((*(row.name for row in ROWS), "row"))

_STATEMENTS = (
    *(exp.Select, exp.Subquery, exp.Union, exp.Except, exp.Intersect, exp.With, exp.CTE, exp.From, exp.Join),
    *(exp.Table, exp.TableAlias, exp.Values, exp.Where, exp.Group, exp.Rollup, exp.Cube),
    *(exp.GroupingSets, exp.Having, exp.Order, exp.Fetch, exp.LimitOptions),
    *(exp.Ordered, exp.Limit, exp.Offset, exp.Distinct, exp.Lock, exp.Into, exp.Qualify),
)
_PARTS = (
    *(exp.Alias, exp.Star, exp.Column, exp.Identifier, exp.Paren, exp.Tuple, exp.Literal, exp.HexString),
    *(
        exp.BitString,
        exp.National,
        exp.Boolean,
        exp.Null,
        exp.Parameter,
        exp.Placeholder,
        exp.SessionParameter,
    ),
    *(exp.Var, exp.DataType, exp.DataTypeParam, exp.Interval, exp.IntervalSpan, exp.Collate, exp.Window),
    *(exp.WindowSpec, exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.Escape),
)
_OPERATORS = (
    *(exp.Not, exp.Neg, exp.BitwiseNot, exp.And, exp.Or, exp.Xor, exp.EQ, exp.NEQ, exp.NullSafeEQ, exp.LT),
    *(exp.LTE, exp.GT, exp.GTE, exp.Between, exp.In, exp.Is, exp.Like, exp.RegexpLike, exp.Exists, exp.All),
    *(exp.Any, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.BitwiseAnd, exp.BitwiseOr),
    *(exp.BitwiseXor, exp.BitwiseLeftShift, exp.BitwiseRightShift, exp.DPipe, exp.Case, exp.If, exp.Cast),
    ValueList,
)
_BY_KEY: dict[str, type[exp.Expr]] = {kind.key: kind for kind in exp.ALL_FUNCTIONS} | OWN_NODES
_FUNCTIONS: tuple[type[exp.Expr], ...] = (exp.Anonymous, *(_BY_KEY[key] for key in NODE_KEYS))
ALLOWED: frozenset[type[exp.Expr]] = frozenset((*_STATEMENTS, *_PARTS, *_OPERATORS, *_FUNCTIONS))


def approve(tree: exp.Expr) -> None:
    """Raise QueryError for a statement that holds anything else, UnknownFunction for a function."""
    nesting, links = {id(tree): 0}, {id(tree): 0}
    for count, node in enumerate(tree.walk()):
        parent = node.parent
        if parent is not None and node is not tree:
            is_link = isinstance(node, _CHAINED) and type(node) is type(parent)
            nesting[id(node)] = nesting[id(parent)] + (not is_link)
            links[id(node)] = links[id(parent)] + is_link
            _check_depth(nesting[id(node)], links[id(node)])
        if count >= NODES_MAX:
            raise QueryError("the statement has too many parts", expected=f"at most {NODES_MAX}")
        if isinstance(node, exp.Func) and isinstance(node.parent, exp.Table):
            called = node.name if isinstance(node, exp.Anonymous) else node.key.upper()
            raise QueryError(f"table functions are not available: {called}")
        if type(node) not in ALLOWED:
            raise _refused(node)
        if isinstance(node, exp.Anonymous) and str(node.name).lower() not in _NAMED:
            raise unknown_function(str(node.name))
        missing = next((name for name in _NEEDED.get(type(node), ()) if node.args.get(name) is None), None)
        if missing is not None:
            raise SqlSyntaxError(f"bad SQL: too few arguments of {node.key.upper()}", expected=missing)
        if not isinstance(node, _QUOTED):
            _check_words(node)


def _check_depth(nesting: int, links: int) -> None:
    if nesting > NESTING_MAX:
        raise SqlSyntaxError(
            "bad SQL: the statement is too deeply nested",
            expected=f"at most {NESTING_MAX} operators and functions within each other",
        )
    if links > CHAIN_MAX:
        raise QueryError(
            "the statement has too many parts",
            expected=f"at most {CHAIN_MAX} terms in a chain of AND, OR, +, || or UNION",
            action="write IN (…) for many comparisons, or join with a table",
        )


def _check_words(node: exp.Expr) -> None:
    for value in node.args.values():
        if isinstance(value, str) and _WORDS.fullmatch(value) is None:
            raise SqlSyntaxError(
                f"bad SQL: {value[:80]!r} is no word", expected="letters, digits and underscores"
            )


def _refused(node: exp.Expr) -> QueryError:
    called = node.this if isinstance(node, exp.WithinGroup) else node
    if isinstance(called, exp.Func):
        return unknown_function(called.sql_name())
    return UnsupportedSql(f"unsupported SQL: {node.key.replace('_', ' ').upper()}")
