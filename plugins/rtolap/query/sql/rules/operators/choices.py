"""Choices and conditions: CASE, COALESCE, GREATEST and their like over branches of several types."""

from __future__ import annotations

from sqlglot import exp

from rtolap.base.errors import UnsupportedSql
from rtolap.query.sql.dialect import rewritten_sql
from rtolap.query.sql.rules.comparisons import compare_case
from rtolap.query.sql.rules.context import Context
from rtolap.query.sql.rules.expression_types import Typed, branches
from rtolap.query.sql.rules.macro_calls import macro
from rtolap.query.sql.rules.operators.numbers import Found, as_decimal, as_number
from rtolap.query.sql.rules.texts import cast_text
from rtolap.query.sql.types import BIGINT, STRING, SqlType

_T = exp.DType


def choice(node: exp.Expr, typed: Typed, context: Context) -> Found:
    """Give all branches the type of the whole. Raises UnsupportedSql where they have none in common."""
    if isinstance(node, exp.Case):
        compare_case(node, typed, context)
    kind = typed.infer(node)
    for branch in branches(node):
        given = typed.of(branch)
        if kind is None or given is None or given == kind or given.kind == "null":
            continue
        if kind.kind == "string" and isinstance(node, exp.Greatest | exp.Least):
            if _as_doubles(node, typed):
                return None
            raise UnsupportedSql(
                f"unsupported SQL: {rewritten_sql(node)[:200]} compares text with something else",
                action="cast one of them",
            )
        converted = _converted(branch, given, kind)
        if converted is not None:
            branch.replace(converted)
            typed.note(converted, BIGINT if kind.kind not in ("string", "decimal") else kind)
    return None


def _converted(branch: exp.Expr, given: SqlType, kind: SqlType) -> Found:
    """Return a branch of a choice of another type, as the choice's."""
    if kind.kind == "string":
        return cast_text(branch, given)
    if kind.kind == "decimal" and (given.is_exact or given.kind == "boolean"):
        whole = exp.cast(branch.copy(), _T.BIGINT) if given.kind == "boolean" else branch.copy()
        return as_decimal(whole, kind.scale)
    return exp.cast(branch.copy(), _T.BIGINT) if given.kind == "boolean" else None


def _as_doubles(node: exp.Expr, typed: Typed) -> bool:
    """Let GREATEST and LEAST of texts and numbers compare numbers; return whether they do."""
    operands = branches(node)
    kinds = [typed.of(each) for each in operands]
    if not all(k is not None and (k.is_number or k.kind in ("string", "boolean", "null")) for k in kinds):
        return False
    for each in operands:
        as_number(each, typed)
    return True


def condition(node: exp.Expr, typed: Typed, context: Context) -> Found:
    """Let a text as a condition hold if the number that it begins with is not 0."""
    if isinstance(node, exp.If):
        choice(node, typed, context)
        if isinstance(node.parent, exp.Case) and node.parent.this is not None:
            return None  # what the subject of the CASE is compared with
    for operand in (node.this, node.args.get("expression")):
        if isinstance(operand, exp.Expr) and typed.of(operand) == STRING:
            holds = exp.NEQ(this=macro("TEXT_NUMBER", operand), expression=exp.Literal.number(0))
            operand.replace(exp.paren(holds, copy=False))
    return None
