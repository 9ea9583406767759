"""Nodes of an expression by what they take and give: numbers, texts, instants, or two of a kind to compare.

All of them are allowed in headers (`clauses`); the types that they need are given to them (`engine_sql`).
"""

from __future__ import annotations

from sqlglot import exp

NUMERIC = (
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.Div,
    exp.IntDiv,
    exp.Mod,
    exp.Neg,
    exp.Abs,
    exp.Ceil,
    exp.Floor,
    exp.Round,
    exp.Sqrt,
    exp.Pow,
    exp.Ln,
    exp.Exp,
    exp.Sign,
    exp.UnixToTime,
)
COMPARING = (
    exp.EQ,
    exp.NEQ,
    exp.GT,
    exp.GTE,
    exp.LT,
    exp.LTE,
    exp.NullSafeEQ,
    exp.In,
    exp.Between,
    exp.Greatest,
    exp.Least,
)
TIMES = (
    exp.DateAdd,
    exp.DateSub,
    exp.TsOrDsAdd,
    exp.DateDiff,
    exp.TsOrDsDiff,
    exp.TimestampTrunc,
    exp.DateTrunc,
    exp.TimeToStr,
    exp.Quarter,
    exp.Hour,
    exp.Minute,
    exp.Second,
)
TEXT_RESULTS = (
    exp.Substring,
    exp.Lower,
    exp.Upper,
    exp.Trim,
    exp.Replace,
    exp.Left,
    exp.Right,
    exp.Reverse,
    exp.RegexpReplace,
    exp.Concat,
    exp.ConcatWs,
    exp.SplitPart,
    exp.MD5,
)
TEXTS = (
    *TEXT_RESULTS,
    exp.Length,
    exp.StrPosition,
    exp.RegexpLike,
    exp.Like,
    exp.StrToDate,
    exp.StrToTime,
)
