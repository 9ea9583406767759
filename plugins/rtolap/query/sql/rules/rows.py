"""Comparisons of rows, `(a, b) = (c, d)`, member by member: a NULL in one is as unknown as a NULL alone.

The engine compares rows as values, in which NULL equals NULL. Written out, `=` is an AND of its members, `<>`
an OR, `IN` an OR of rows, and `<` goes on to the next member where one is equal.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from rtolap.base.errors import SqlSyntaxError, UnsupportedSql
from rtolap.query.sql.dialect import rewritten_sql

CompareMembers = Callable[[type[exp.Expr], exp.Expr, exp.Expr], exp.Expr]  # of two members
_STRICT: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LTE: exp.LT,
    exp.GTE: exp.GT,
    exp.LT: exp.LT,
    exp.GT: exp.GT,
}


def is_row(node: exp.Expr) -> bool:
    return isinstance(node, exp.Tuple)


def compare_rows(kind: type[exp.Expr], left: exp.Expr, right: exp.Expr, compare: CompareMembers) -> exp.Expr:
    """Return the comparison `kind` of two rows, out of copies of their members."""
    pairs = list(zip(left.expressions, right.expressions, strict=False))
    if not is_row(left) or not is_row(right) or len(left.expressions) != len(right.expressions):
        raise SqlSyntaxError(
            f"bad SQL: {rewritten_sql(left)[:100]} is compared with {rewritten_sql(right)[:100]}",
            expected="rows of as many members",
        )

    def member(kind: type[exp.Expr], one: exp.Expr, other: exp.Expr) -> exp.Expr:
        if is_row(one) or is_row(other):
            return compare_rows(kind, one, other, compare)
        return compare(kind, one, other)

    if kind in (exp.EQ, exp.NullSafeEQ):
        return joined(exp.And, [member(kind, one, other) for one, other in pairs])
    if kind is exp.NEQ:
        return joined(exp.Or, [member(kind, one, other) for one, other in pairs])
    if kind not in _STRICT:
        raise UnsupportedSql(f"unsupported SQL: rows beside {kind.key.upper()}")
    *before, last = pairs
    comparison = member(kind, *last)
    for one, other in reversed(before):
        equal = joined(exp.And, [member(exp.EQ, one, other), comparison])
        comparison = joined(exp.Or, [member(_STRICT[kind], one, other), equal])
    return comparison


def among_constants(members: list[exp.Expr], rows: list[list[exp.Expr]]) -> exp.Expr:
    """Return `members IN (rows)`, of rows of constants that are not NULL, by the engine's own IN.

    Where a member is NULL, the answer is unknown if the others are among the rows, and FALSE if not.
    """
    if len(members) == 1:
        return exp.In(this=members[0].copy(), expressions=[row[0].copy() for row in rows])
    found = exp.In(
        this=exp.Tuple(expressions=[member.copy() for member in members]),
        expressions=[exp.Tuple(expressions=[each.copy() for each in row]) for row in rows],
    )
    case = exp.case()
    for place, member in enumerate(members):
        others = among_constants(
            [*members[:place], *members[place + 1 :]], [[*row[:place], *row[place + 1 :]] for row in rows]
        )
        unknown = exp.case().when(exp.Is(this=exp.paren(others), expression=exp.false()), exp.false())
        case = case.when(exp.Is(this=member.copy(), expression=exp.null()), unknown, copy=False)
    return case.else_(found, copy=False)


def joined(connector: type[exp.Connector], terms: list[exp.Expr]) -> exp.Expr:
    """Return the terms as a balanced tree: a long list nests only a little."""
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    left, right = joined(connector, terms[:half]), joined(connector, terms[half:])
    return exp.paren(connector(this=left, expression=right), copy=False)
