"""Comparisons of unlike operands, as MySQL compares them, whatever way a constant came.

A DATE beside a moment with a time counts as its midnight: `d < '2013-01-02 05:00'` is `d <= '2013-01-02'`,
and `d = '2013-01-02 05:00'` holds for no date. Text beside a number is the number that it begins with, text
and numbers beside a moment are moments, a boolean is 1 or 0; see `loose_values`. What is rewritten stays a
comparison of a column with a constant wherever it can, so that it is pushed down.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from sqlglot import exp

from rtolap.base.errors import UnsupportedSql
from rtolap.protocols.query.messages import QueryWarning
from rtolap.query.approval.value_lists import ValueList, value_list_of
from rtolap.query.sql.dialect import rewritten_sql
from rtolap.query.sql.list_types import PLAIN_MOMENT, beside
from rtolap.query.sql.loose_values import moment_of_number, moment_of_text, number_of
from rtolap.query.sql.rules.context import Context
from rtolap.query.sql.rules.expression_types import Typed
from rtolap.query.sql.rules.macro_calls import macro
from rtolap.query.sql.rules.rows import CompareMembers, among_constants, compare_rows, is_row, joined
from rtolap.query.sql.timeline import as_datetime, text
from rtolap.query.sql.types import BOOLEAN, DATE, DATETIME, NULL, STRING, SqlType

_T = exp.DType
_ROWS_LOOKED_UP_MIN = 9  # of an IN list
_MEMBERS_LOOKED_UP_MAX = 4  # what is written grows with the factorial of it
_FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
}
# d < x, where x is later than the midnight of its day: d <= that day, and so on
_OF_THE_DAY: dict[type[exp.Expr], type[exp.Expr]] = {exp.LT: exp.LTE, exp.GTE: exp.GT}


def compare_pair(node: exp.Expr, typed: Typed, context: Context) -> exp.Expr | None:
    left, right = node.this, node.expression
    if isinstance(right, exp.All | exp.Any):
        _check_alike(node, typed.of(left), typed.of(right.this.unnest()))
        return None
    if is_row(left) or is_row(right):
        return compare_rows(type(node), left, right, _of_members(typed, context))
    return _compared(type(node), left, right, typed, context)


def equals(left: exp.Expr, right: exp.Expr, typed: Typed, context: Context) -> exp.Expr:
    """Return `left = right` over copies of them."""
    compared = _compared(exp.EQ, left, right, typed, context)
    return compared if compared is not None else _pair(exp.EQ, left.copy(), right.copy())


def compare_range(node: exp.Expr, typed: Typed, context: Context) -> exp.Expr | None:
    """Return BETWEEN as two comparisons, where one of them is of unlike operands."""
    if node.args.get("symmetric"):
        return None
    bounds = [(exp.GTE, node.args["low"]), (exp.LTE, node.args["high"])]
    compared = [_compared(kind, node.this, bound, typed, context) for kind, bound in bounds]
    if all(each is None for each in compared):
        return None
    sides = [
        each if each is not None else kind(this=node.this.copy(), expression=bound.copy())
        for each, (kind, bound) in zip(compared, bounds, strict=True)
    ]
    return exp.paren(exp.and_(*sides, copy=False), copy=False)


def compare_in(node: exp.Expr, typed: Typed, context: Context) -> exp.Expr | None:
    query = node.args.get("query")
    if query is not None:
        members = node.this.expressions if is_row(node.this) else [node.this]
        for place, member in enumerate(members):
            _check_alike(node, typed.of(member), typed.shown(query.unnest(), place))
        return None
    found = value_list_of(node)
    if found is not None:
        converted = beside(
            found.members, typed.of(node.this), lambda value: _warn_of_truncation("double", value, context)
        )
        if converted is found.members:
            return None
        if converted is not None:
            return exp.In(this=node.this.copy(), expressions=[ValueList(members=converted)])
        node.set("expressions", found.members.literals())
        for item in node.expressions:
            typed.note(item, typed.infer(item))
    if is_row(node.this):
        return _rows_in(node, typed, context)
    compared = [_compared(exp.EQ, node.this, item, typed, context) for item in node.expressions]
    if all(each is None for each in compared):
        return None
    items: list[exp.Expr] = []  # that the same operand is compared with at once
    numbers: list[exp.Expr] = []  # that the number of its text is compared with
    as_number = macro("TEXT_NUMBER", node.this)
    others: list[exp.Expr] = []
    for item, each in zip(node.expressions, compared, strict=True):
        if each is None:
            items.append(item.copy())
        elif isinstance(each, exp.EQ) and each.this == node.this:
            items.append(each.expression.copy())
        elif isinstance(each, exp.EQ) and each.this.is_number and each.expression == as_number:
            numbers.append(each.this)
        else:
            others.append(each)
    for operand, values in ((as_number, numbers), (node.this.copy(), items)):
        if values:
            others.insert(0, exp.In(this=operand, expressions=values))
    return exp.paren(exp.or_(*others, copy=False), copy=False) if len(others) > 1 else others[0]


def compare_nullif(node: exp.Expr, typed: Typed, context: Context) -> exp.Expr | None:
    equal = _compared(exp.EQ, node.this, node.expression, typed, context)
    return None if equal is None else exp.case().when(equal, exp.null()).else_(node.this.copy())


def compare_case(node: exp.Case, typed: Typed, context: Context) -> None:
    """Turn `CASE a WHEN b` into `CASE WHEN a = b`, where that compares unlike operands."""
    if node.this is None:
        return
    compared = [_compared(exp.EQ, node.this, each.this, typed, context) for each in node.args["ifs"]]
    if all(each is None for each in compared):
        return
    subject = node.this.copy()
    node.set("this", None)
    for branch, equal in zip(node.args["ifs"], compared, strict=True):
        if equal is None:
            equal = exp.EQ(this=subject.copy(), expression=branch.this.copy())
        branch.set("this", equal)


def _rows_in(node: exp.Expr, typed: Typed, context: Context) -> exp.Expr:
    """Compare rows with a list. Long lists of constant rows are looked up at once, others are compared one by
    one."""
    members = node.this.expressions
    constant = [row for row in node.expressions if _is_constant_row(row, members, typed, context)]
    if len(constant) < _ROWS_LOOKED_UP_MIN or len(members) > _MEMBERS_LOOKED_UP_MAX:
        constant = []
    known = {id(row) for row in constant}
    compared = [
        compare_rows(exp.EQ, node.this, row, _of_members(typed, context))
        for row in node.expressions
        if id(row) not in known
    ]
    if constant:
        compared.append(exp.paren(among_constants(members, [row.expressions for row in constant])))
    return joined(exp.Or, compared)


def _is_constant_row(row: exp.Expr, members: list[exp.Expr], typed: Typed, context: Context) -> bool:
    """Return True if all values are constants that the engine compares with the members as MySQL does."""
    if not is_row(row) or len(row.expressions) != len(members):
        return False
    return all(
        isinstance(each, exp.Literal)
        and typed.of(member) is not None
        and _compared(exp.EQ, member, each, typed, context) is None
        for member, each in zip(members, row.expressions, strict=True)
    )


def _of_members(typed: Typed, context: Context) -> CompareMembers:
    def compare(kind: type[exp.Expr], left: exp.Expr, right: exp.Expr) -> exp.Expr:
        compared = _compared(kind, left, right, typed, context)
        return compared if compared is not None else _pair(kind, left.copy(), right.copy())

    return compare


def _check_alike(node: exp.Expr, left: SqlType | None, right: SqlType | None) -> None:
    """Check the types of IN over a query, which the engine would bring to one type its own way."""
    if left in (None, NULL) or right in (None, NULL):
        return
    if (left == STRING) != (right == STRING):
        raise UnsupportedSql(
            f"unsupported SQL: {rewritten_sql(node)[:200]} looks for one type among another",
            expected="operands of like types",
            action="cast one of them",
        )


def _compared(
    kind: type[exp.Expr], left: exp.Expr, right: exp.Expr, typed: Typed, context: Context
) -> exp.Expr | None:
    """Return the comparison rewritten; None where the engine compares as MySQL does."""
    left_type, right_type = typed.of(left), typed.of(right)
    if left_type is None or right_type is None or left_type.kind == right_type.kind:
        return None
    if {left_type.kind, right_type.kind} == {"binary", "string"}:
        return _with_bytes(kind, left, right, left_type, context)
    if _ranks(right_type, left_type):
        return _compared(_FLIPPED.get(kind, kind), right, left, typed, context)
    if left_type.is_moment and right_type.kind == "string":
        moment = _text_moment(right, left_type, context)
        if left_type != DATE:
            return None if moment is None else _pair(kind, left.copy(), moment)
        return _with_date(kind, left, right if moment is None else moment, context)
    if left_type.is_moment and right_type.is_number:
        return _with_digits(kind, left, right, left_type, context)
    if left_type == DATE and right_type == DATETIME:
        return _with_date(kind, left, right, context)
    if left_type.is_number and right_type.kind == "string":
        return _with_number(kind, left, right, context)
    if left_type == BOOLEAN and (right_type.is_number or right_type.kind == "string"):
        return _with_boolean(kind, left, right, right_type, context)
    return None


def _ranks(left: SqlType, right: SqlType) -> bool:
    """Return True if the type of `left` comes before that of `right` in the order of rewriting."""
    order = ("boolean", "date", "datetime", "int", "bigint", "hugeint", "decimal", "double", "string")
    return (
        left.kind in order and right.kind in order and order.index(left.kind) < order.index(right.kind)
    ) and not (left.is_number and right.is_number)


def _with_date(kind: type[exp.Expr], day: exp.Expr, moment: exp.Expr, context: Context) -> exp.Expr:
    instant = as_datetime(_constant(moment, context))
    if instant is None:  # another way of writing it, or none: the engine says
        return _pair(kind, exp.cast(day.copy(), _T.TIMESTAMP), exp.cast(moment.copy(), _T.TIMESTAMP))
    midnight = datetime(instant.year, instant.month, instant.day)
    if instant == midnight or kind in (exp.LT, exp.LTE, exp.GT, exp.GTE):
        if instant != midnight:
            kind = _OF_THE_DAY.get(kind, kind)
        date = exp.cast(exp.Literal.string(midnight.date().isoformat()), _T.DATE)
        return _pair(kind, day.copy(), date)
    exactly = exp.cast(exp.Literal.string(text(instant)), _T.TIMESTAMP)
    return _pair(kind, exp.cast(day.copy(), _T.TIMESTAMP), exactly)


def _with_bytes(
    kind: type[exp.Expr], left: exp.Expr, right: exp.Expr, left_type: SqlType, context: Context
) -> exp.Expr:
    """Compare bytes. Beside text they compare as the text that they are, otherwise as bytes."""
    bytes_are_left = left_type.kind == "binary"
    value, words = (left, right) if bytes_are_left else (right, left)
    constant = (
        bytes.fromhex(str(value.this)) if isinstance(value, exp.HexString) else _constant(value, context)
    )
    other = macro("BYTES", words)
    if isinstance(constant, bytes):
        try:
            value, other = exp.Literal.string(constant.decode()), words.copy()
        except UnicodeDecodeError:
            value = value.copy()
    return _pair(kind, value, other) if bytes_are_left else _pair(kind, other, value.copy())


def _text_moment(words: exp.Expr, beside: SqlType, context: Context) -> exp.Expr | None:
    """Return a text as a moment; None where the engine reads it alike."""
    value = _constant(words, context)
    if not isinstance(value, str):
        if not words.find(exp.Column, exp.Query):
            return None  # a parameter that has no value yet
        return macro("TEXT_MOMENT", words)
    moment, truncated = moment_of_text(value)
    if not truncated and PLAIN_MOMENT.fullmatch(value):
        return None
    if truncated:
        _warn_of_truncation(beside.kind, value, context)
    return exp.cast(exp.Literal.string(text(moment)), _T.TIMESTAMP)


def _with_digits(
    kind: type[exp.Expr], moment: exp.Expr, number: exp.Expr, beside: SqlType, context: Context
) -> exp.Expr:
    value = _constant(number, context)
    if not isinstance(value, int | float | Decimal):
        return _pair(kind, exp.cast(moment.copy(), _T.TIMESTAMP), macro("NUMBER_MOMENT", number))
    meant, truncated = moment_of_number(value)
    if truncated:
        _warn_of_truncation(beside.kind, str(value), context)
    literal = exp.cast(exp.Literal.string(text(meant)), _T.TIMESTAMP)
    return (
        _with_date(kind, moment, literal, context) if beside == DATE else _pair(kind, moment.copy(), literal)
    )


def _warn_of_truncation(kind: str, value: str, context: Context) -> None:
    message = f"Truncated incorrect {kind.upper()} value: '{value[:100]}'"
    context.warnings.append(QueryWarning("truncated_value", "Warning", message))


def _with_number(kind: type[exp.Expr], number: exp.Expr, words: exp.Expr, context: Context) -> exp.Expr:
    value = _constant(words, context)
    if not isinstance(value, str):
        return _pair(kind, number.copy(), macro("TEXT_NUMBER", words))
    return _pair(kind, number.copy(), number_literal(value, context))


def _with_boolean(
    kind: type[exp.Expr], flag: exp.Expr, other: exp.Expr, given: SqlType, context: Context
) -> exp.Expr:
    constant = _constant(flag, context)
    if isinstance(constant, bool) and given.is_number:
        return _pair(kind, exp.Literal.number(int(constant)), other.copy())
    if given.kind == "string":
        value = _constant(other, context)
        other = number_literal(value, context) if isinstance(value, str) else macro("TEXT_NUMBER", other)
    if isinstance(other, exp.Literal) and str(other.this) in ("0", "1"):
        return _pair(kind, flag.copy(), exp.Boolean(this=str(other.this) == "1"))
    return _pair(kind, exp.cast(flag.copy(), _T.BIGINT), other.copy())


def number_literal(value: str, context: Context) -> exp.Expr:
    """Return the number that a text begins with."""
    number = number_of(value)
    if number.truncated:
        _warn_of_truncation("double", value, context)
    literal: exp.Expr = exp.Literal.number(number.digits)
    return exp.Neg(this=literal) if number.negative else literal


def _constant(node: exp.Expr, context: Context) -> object:
    if node.find(exp.Column, exp.Query, exp.Rand):
        return None
    try:
        return context.fold(node)
    except LookupError:
        return None


def _pair(kind: type[exp.Expr], left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return kind(this=left, expression=right)
