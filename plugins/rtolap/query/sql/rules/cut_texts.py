"""GROUP_CONCAT of measures: notes how to tell whether the answer's texts are cut.

A measure keeps texts up to a bound. Whether a group has more is known when its partials are united, which the
engine does. The check is the SELECT itself, with the question in the place of its columns, so that it has
the same rows and groups.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from rtolap.aggregates.group_concat import JOINED_TEXTS, TEXTS_ARE_CUT
from rtolap.protocols.query.messages import QueryWarning
from rtolap.query.plan import CutCheck
from rtolap.query.sql.dialect import engine_sql
from rtolap.query.sql.rules.context import Context

_SHOWN_ONLY = ("order", "limit", "offset", "distinct", "qualify", "windows")


def cut_texts(tree: exp.Expr, context: Context) -> exp.Expr:
    """Set `context.cuts`. The tree stays as it is."""
    if not any(str(node.name).lower() == JOINED_TEXTS for node in tree.find_all(exp.Anonymous)):
        return tree
    for scope in context.scopes(tree):
        select = scope.expression
        if not isinstance(select, exp.Select):
            continue
        calls = [node for node in scope.find_all(exp.Anonymous) if str(node.name).lower() == JOINED_TEXTS]
        if not calls:
            continue
        if scope.is_correlated_subquery:
            context.warnings.append(_warning("may be cut"))
            continue
        context.cuts.append(_check(select, calls, tree))
    return tree


def is_joined(tree: exp.Expr) -> bool:
    """Return True if the statement joins texts of a measure."""
    return any(str(node.name).lower() == JOINED_TEXTS for node in tree.find_all(exp.Anonymous))


def _check(select: exp.Select, calls: Sequence[exp.Expr], tree: exp.Expr) -> CutCheck:
    cuts = [exp.Anonymous(this=TEXTS_ARE_CUT, expressions=[each.expressions[0].copy()]) for each in calls]
    inner = select.copy()
    for clause in _SHOWN_ONLY:
        inner.set(clause, None)
    inner.set("with_", None)
    having = inner.args.get("having")
    if having is not None and is_joined(having):  # a text that is cut decides which groups there are
        inner.set("having", None)
    inner.set("expressions", [exp.alias_(exp.or_(*cuts, copy=False), "cut", quoted=True)])
    most = exp.Max(this=exp.cast(exp.column("cut", quoted=True), exp.DataType.Type.INT))
    outer = exp.select(exp.func("COALESCE", most, exp.Literal.number(0))).from_(inner.subquery("cuts"))
    for with_ in (tree.args.get("with_"), select.args.get("with_") if select is not tree else None):
        for each in () if with_ is None else with_.expressions:
            outer = outer.with_(each.args["alias"].copy(), as_=each.this.copy(), copy=False)
    names = dict.fromkeys(str(node.name) for node in outer.find_all(exp.Parameter))
    return CutCheck(engine_sql(outer), tuple(names), _warning("is cut"))


def _warning(what: str) -> QueryWarning:
    return QueryWarning(
        "text_cut",
        "Warning",
        f"the text of a GROUP_CONCAT {what}: it shows the smallest values, as many as the bytes_max of its "
        "measure holds; group or filter by more columns, or declare a cube with a larger bytes_max",
    )
