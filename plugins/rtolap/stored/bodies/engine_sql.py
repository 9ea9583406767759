"""An expression in SQL as users write it → in the words of the embedded engine, with the types that it needs.

Text that stands where a number or an instant is needed is read as one; what is no such value is null.

Nodes are of kinds by what they take and give: numbers, texts, instants, or two of a kind to compare. All of
them are allowed in headers (`clauses`).
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from sqlglot import exp

from rtolap.stored.bodies.options import OFFSET

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


def engine_sql(tree: exp.Expr, places: Mapping[str, int], types: Mapping[str, pa.DataType], zone: str) -> str:
    """Return the engine's SQL. `places`: of columns, which the engine calls `c0`, `c1`, …; `zone`: whose
    clocks show instants."""
    tree = exp.Paren(this=tree.copy())
    _unify(tree, types)
    for node in list(tree.find_all(exp.Column)):
        name = str(node.name)
        placed = exp.column(f"c{places[name]}")
        wanted = _wanted(node, pa.types.is_string(types[name]), types)
        node.replace(placed if wanted is None else exp.TryCast(this=placed, to=exp.DataType.build(wanted)))
    for cast in list(tree.find_all(exp.Cast)):
        if not isinstance(cast, exp.TryCast):
            cast.replace(exp.TryCast(this=cast.this, to=cast.to))
    for length in list(tree.find_all(exp.Length)):
        if length.args.get("binary"):  # LENGTH counts bytes, CHAR_LENGTH characters
            length.replace(exp.Anonymous(this="STRLEN", expressions=[length.this]))
    for instant in list(tree.find_all(exp.UnixToTime)):
        written = instant.args.get("format")
        shown = _shown(exp.UnixToTime(this=instant.this), zone)
        instant.replace(shown if written is None else exp.TimeToStr(this=shown, format=written))
    return str(tree.sql(dialect="duckdb"))


def _shown(instant: exp.Expr, zone: str) -> exp.Expr:
    """Return an instant as the zone's clocks show it."""
    offset = OFFSET.fullmatch(zone)
    if offset is None:
        return exp.AtTimeZone(this=instant, zone=exp.Literal.string(zone))
    minutes = int(f"{offset[1]}{int(offset[2]) * 60 + int(offset[3])}")
    shift = exp.Interval(this=exp.Literal.string(str(minutes)), unit=exp.var("MINUTE"))
    plain = exp.cast(instant, exp.DataType.Type.TIMESTAMP)
    return exp.paren(exp.Add(this=plain, expression=shift), copy=False)


def _wanted(column: exp.Expr, is_text: bool, types: Mapping[str, pa.DataType]) -> str | None:
    """Return the type that the column's surroundings need; None to leave it."""
    parent = column.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    if isinstance(parent, TEXTS):
        return None if is_text else "TEXT"
    if not is_text or parent is None:
        return None
    if isinstance(parent, (exp.Add, exp.Sub)) and parent.find(exp.Interval):
        return "TIMESTAMP"
    if isinstance(parent, NUMERIC):
        return "DOUBLE"
    if isinstance(parent, COMPARING) and any(_is_number(other, types) for other in parent.iter_expressions()):
        return "DOUBLE"
    return "TIMESTAMP" if isinstance(parent, TIMES) else None


def _unify(tree: exp.Expr, types: Mapping[str, pa.DataType]) -> None:
    """Unify types. Results become text where one of them is text; text becomes a number or an instant where
    one is needed."""
    for node in list(tree.find_all(exp.Coalesce, exp.If, exp.Case)):
        results = _results(node)
        if any(_is_text(result, types) for result in results):
            for result in results:
                if not _is_text(result, types) and not isinstance(result, exp.Null):
                    result.replace(exp.cast(result.copy(), exp.DataType.Type.TEXT))
    for place in list(tree.find_all(*NUMERIC, *TIMES)):
        is_time = isinstance(place, TIMES)
        both = not is_time or isinstance(place, (exp.DateDiff, exp.TsOrDsDiff))
        for name in ("this", "expression") if both else ("this",):
            operand = place.args.get(name)
            if operand is None or isinstance(operand.unnest(), exp.Column) or not _is_text(operand, types):
                continue
            operand.replace(exp.cast(operand.copy(), "TIMESTAMP" if is_time else "DOUBLE"))


def _results(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, exp.Coalesce):
        return [node.this, *node.expressions]
    results = (
        [result.args["true"] for result in node.args.get("ifs", ())] if isinstance(node, exp.Case) else []
    )
    results += [node.args.get("true")] if isinstance(node, exp.If) else []
    results += [node.args.get("default"), node.args.get("false")]
    return [result for result in results if result is not None]


def _is_text(node: exp.Expr, types: Mapping[str, pa.DataType]) -> bool:
    node = node.unnest()
    if isinstance(node, exp.Column):
        return bool(pa.types.is_string(types[str(node.name)]))
    if isinstance(node, exp.Literal):
        return bool(node.is_string)
    if isinstance(node, (exp.Coalesce, exp.If, exp.Case)):
        return any(_is_text(result, types) for result in _results(node))
    return isinstance(node, TEXT_RESULTS)


def _is_number(node: exp.Expr, types: Mapping[str, pa.DataType]) -> bool:
    node = node.unnest()
    if isinstance(node, exp.Literal):
        return not node.is_string
    if isinstance(node, exp.Column):
        kind = types.get(str(node.name), pa.string())
        return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
    return isinstance(node, NUMERIC)
