"""The rewrite of each kind of expression."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from rtolap.query.sql.rules.bits import bit_totals, bits, filtered_bits
from rtolap.query.sql.rules.comparisons import compare_in, compare_nullif, compare_pair, compare_range
from rtolap.query.sql.rules.context import Context
from rtolap.query.sql.rules.expression_types import Typed
from rtolap.query.sql.rules.moments import moved
from rtolap.query.sql.rules.mysql_functions import by_types, hexadecimal
from rtolap.query.sql.rules.operators.arithmetic import arithmetic, of_number, rounded, whole_already
from rtolap.query.sql.rules.operators.casts import cast, part_of_moment
from rtolap.query.sql.rules.operators.choices import choice, condition
from rtolap.query.sql.rules.operators.numbers import Found
from rtolap.query.sql.rules.operators.over_rows import count_rows, group_concat, over_rows
from rtolap.query.sql.rules.patterns import pattern
from rtolap.query.sql.rules.texts import grouped, like, texts

_Rewrite = Callable[[exp.Expr, Typed, Context], Found]


def operators(tree: exp.Expr, context: Context) -> exp.Expr:
    """Rewrite the operators of a statement in place, inner ones first: outer ones need their types."""
    typed = Typed(context)
    for node in typed.walk(tree):
        texts(node, typed)
        rewrite = _REWRITES.get(type(node))
        rewritten = None if rewrite is None else rewrite(node, typed, context)
        kind = typed.infer(node)
        typed.note(node, kind)
        if rewritten is not None:
            node.replace(rewritten)
            typed.note(rewritten, kind or typed.infer(rewritten))
    return tree


_REWRITES: dict[type[exp.Expr], _Rewrite] = {
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Abs, exp.Mod, exp.IntDiv, exp.Div), arithmetic),
    **dict.fromkeys((exp.DateAdd, exp.DateSub, exp.TimestampAdd), moved),
    **dict.fromkeys((exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseNot), bits),
    **dict.fromkeys((exp.BitwiseLeftShift, exp.BitwiseRightShift), bits),
    **dict.fromkeys((exp.BitwiseAndAgg, exp.BitwiseOrAgg, exp.BitwiseXorAgg), bit_totals),
    exp.Filter: filtered_bits,
    **dict.fromkeys((exp.RegexpLike, exp.RegexpReplace), pattern),
    **dict.fromkeys(
        (exp.Sign, exp.Sin, exp.Cos, exp.Tan, exp.Atan, exp.Atan2, exp.Degrees, exp.Radians), of_number
    ),
    **dict.fromkeys((exp.And, exp.Or, exp.Xor, exp.Not, exp.Where, exp.Having, exp.If), condition),
    **dict.fromkeys((exp.Case, exp.Coalesce, exp.Greatest, exp.Least), choice),
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ), compare_pair),
    **dict.fromkeys((exp.Sum, exp.Avg), over_rows),
    exp.Anonymous: by_types,
    exp.Between: compare_range,
    exp.In: compare_in,
    exp.Nullif: compare_nullif,
    exp.Like: like,
    **dict.fromkeys((exp.Round, exp.Trunc), rounded),
    **dict.fromkeys((exp.Floor, exp.Ceil), whole_already),
    **dict.fromkeys(
        (exp.Hour, exp.Minute, exp.Second, exp.Quarter, exp.Dayname, exp.LastDay, exp.Extract), part_of_moment
    ),
    exp.Cast: cast,
    exp.Hex: hexadecimal,
    exp.Count: count_rows,
    exp.NumberToStr: grouped,
    exp.GroupConcat: group_concat,
}
