"""Operators, choices and casts over typed operands: written so that MySQL's answer comes, or a clear refusal.

| written | MySQL | the engine |
|---|---|---|
| integers with `+ - *` | 64 bits, and a SUM has more | 32 bits where both are |
| `a % 0`, `a DIV 0` | NULL | an error |
| `&`, `|`, `^`, `~` | unsigned | signed |
| text beside a number | a double | a rounded integer, or an error |
| CASE, COALESCE, … over decimals of several scales | the largest scale | of a SUM the smallest |
| a choice of text and something else | text | an error |
| booleans as numbers and as text | 1 and 0 | TRUE and FALSE, or an error |
| `ROUND` of a double | half to even | half away from zero |
| a date moved by days | a date | a timestamp |

Comparisons are in `comparisons`.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from rtolap.base.errors import UnsupportedSql
from rtolap.query.sql.dialect import user_sql
from rtolap.query.sql.rules.comparisons import (
    compare_case,
    compare_in,
    compare_nullif,
    compare_pair,
    compare_range,
)
from rtolap.query.sql.rules.context import Context
from rtolap.query.sql.rules.expression_types import Typed, branches
from rtolap.query.sql.rules.macro_calls import macro
from rtolap.query.sql.rules.mysql_functions import by_types
from rtolap.query.sql.rules.texts import cast_text, grouped, like, texts
from rtolap.query.sql.rules.totals import TOTAL
from rtolap.query.sql.types import DATE, DECIMAL_DIGITS, QUOTIENT, STRING, SqlType

_T = exp.DType
_Found = exp.Expr | None
_Rewrite = Callable[[exp.Expr, Typed, Context], _Found]


def operators(tree: exp.Expr, context: Context) -> exp.Expr:
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


def _arithmetic(node: exp.Expr, typed: Typed, context: Context) -> _Found:
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.is_string:
        return None
    operands = [node.this] if isinstance(node, exp.Unary | exp.Abs) else [node.this, node.expression]
    if any(isinstance(each, exp.Interval) for each in operands):
        return _moved(node, typed, context)
    _refuse_moments(node, operands, typed)
    kinds = [_as_number(each, typed) for each in operands]
    if node.meta.get(TOTAL) or any(_is_total(each) for each in operands):
        narrow = all(kind is not None and kind.kind in ("int", "bigint", "boolean") for kind in kinds)
        wide = _T.INT128 if narrow else None
    else:
        wide = _T.BIGINT if all(kind is None or kind.kind in ("int", "null") for kind in kinds) else None
        wide = wide if kinds[0] is not None and kinds[0].kind == "int" else None
    if wide is not None and not isinstance(node, exp.Div):
        node.this.replace(exp.cast(node.this.copy(), wide))
        typed.note(node.this, SqlType("hugeint" if wide is _T.INT128 else "bigint"))
    if isinstance(node, exp.IntDiv | exp.Mod):
        return _divided(node, kinds)
    return None


def _divided(node: exp.Expr, kinds: list[SqlType | None]) -> _Found:
    whole = all(kind is not None and (kind.is_integer or kind.kind in ("boolean", "null")) for kind in kinds)
    divisor = node.expression.unnest()
    is_safe = isinstance(divisor, exp.Literal) and str(divisor.this).strip("0.") != ""
    if isinstance(node, exp.Mod):
        name = None if is_safe else "MYSQL_MODULO"
    elif whole:
        name = None if is_safe else "MYSQL_DIVIDED"
    else:
        name = "MYSQL_WHOLE_PART"
    if name is None:
        return None
    return exp.Anonymous(this=name, expressions=[node.this.unnest().copy(), node.expression.unnest().copy()])


def _as_number(operand: exp.Expr, typed: Typed) -> SqlType | None:
    """Text beside a number is a double, a boolean an integer."""
    kind = typed.of(operand)
    if kind is None or kind.kind not in ("string", "boolean"):
        return kind
    number_type = SqlType("double" if kind.kind == "string" else "bigint")
    number = macro("TEXT_NUMBER", operand) if kind.kind == "string" else exp.cast(operand.copy(), _T.BIGINT)
    operand.replace(number)
    typed.note(number, number_type)
    return number_type


def _is_total(operand: exp.Expr) -> bool:
    return bool(operand.unnest().meta.get(TOTAL))


def _refuse_moments(node: exp.Expr, operands: list[exp.Expr], typed: Typed) -> None:
    kinds = [typed.of(each) for each in operands]
    if any(kind is not None and kind.is_moment for kind in kinds) and all(
        kind is not None and (kind.is_moment or kind.is_number or kind.kind in ("boolean", "string"))
        for kind in kinds
    ):
        raise UnsupportedSql(
            f"unsupported SQL: {user_sql(node)[:200]} counts with a date as with a number",
            expected="an INTERVAL, DATEDIFF or TIMESTAMPDIFF",
        )


def _moved(node: exp.Expr, typed: Typed, context: Context) -> _Found:
    """A date moved by whole days stays one."""
    return exp.cast(node.copy(), _T.DATE) if typed.infer(node) == DATE else None


def _bits(node: exp.Expr, typed: Typed, context: Context) -> _Found:
    for operand in [node.this] if isinstance(node, exp.BitwiseNot) else [node.this, node.expression]:
        kind = typed.of(operand)
        if kind is not None and kind.kind in ("int", "boolean"):
            operand.replace(exp.cast(operand.copy(), _T.BIGINT))
        elif kind is not None and kind.kind == "string":
            operand.replace(macro("TEXT_INTEGER", operand))
    return exp.Anonymous(this="MYSQL_UNSIGNED", expressions=[node.copy()])


def _choice(node: exp.Expr, typed: Typed, context: Context) -> _Found:
    if isinstance(node, exp.Case):
        compare_case(node, typed, context)
    kind = typed.infer(node)
    for branch in branches(node):
        given = typed.of(branch)
        if kind is None or given is None or given == kind or given.kind == "null":
            continue
        if kind.kind == "string":
            if isinstance(node, exp.Greatest | exp.Least):
                if _as_doubles(node, typed):
                    return None
                raise UnsupportedSql(
                    f"unsupported SQL: {user_sql(node)[:200]} compares text with something else",
                    action="cast one of them",
                )
            branch.replace(cast_text(branch, given))
        elif kind.kind == "decimal" and (given.is_exact or given.kind == "boolean"):
            whole = exp.cast(branch.copy(), _T.BIGINT) if given.kind == "boolean" else branch.copy()
            branch.replace(exp.cast(whole, exp.DataType.build(f"DECIMAL({DECIMAL_DIGITS}, {kind.scale})")))
        elif given.kind == "boolean":
            branch.replace(exp.cast(branch.copy(), _T.BIGINT))
    return None


def _as_doubles(node: exp.Expr, typed: Typed) -> bool:
    """GREATEST and LEAST of texts and numbers compare numbers."""
    operands = branches(node)
    kinds = [typed.of(each) for each in operands]
    if not all(k is not None and (k.is_number or k.kind in ("string", "boolean", "null")) for k in kinds):
        return False
    for each in operands:
        _as_number(each, typed)
    return True


def _of_number(node: exp.Expr, typed: Typed, context: Context) -> _Found:
    """Functions of numbers read a text as one."""
    for operand in (node.this, node.args.get("expression")):
        if isinstance(operand, exp.Expr) and typed.of(operand) == STRING:
            _as_number(operand, typed)
    return None


def _condition(node: exp.Expr, typed: Typed, context: Context) -> _Found:
    """A text as a condition holds if the number that it begins with is not 0."""
    if isinstance(node, exp.If):
        _choice(node, typed, context)
        if isinstance(node.parent, exp.Case) and node.parent.this is not None:
            return None  # what the subject of the CASE is compared with
    for operand in (node.this, node.args.get("expression")):
        if isinstance(operand, exp.Expr) and typed.of(operand) == STRING:
            holds = exp.NEQ(this=macro("TEXT_NUMBER", operand), expression=exp.Literal.number(0))
            operand.replace(exp.paren(holds, copy=False))
    return None


def _over_rows(node: exp.Expr, typed: Typed, context: Context) -> _Found:
    """SUM and AVG of booleans and texts."""
    if not isinstance(node.this, exp.Distinct):
        _as_number(node.this, typed)
    return None


def _part(node: exp.Expr, typed: Typed, context: Context) -> _Found:
    """HOUR('…') and its like: a text is read as a moment."""
    moment = node.expression if isinstance(node, exp.Extract) else node.this
    kind = typed.of(moment)
    if kind is not None and kind.kind in ("string", "null"):
        moment.replace(exp.cast(moment.copy(), _T.TIMESTAMP))
    return None


def _round(node: exp.Expr, typed: Typed, context: Context) -> _Found:
    kind, written = _as_number(node.this, typed), node.args.get("decimals")
    if written is not None and not isinstance(written.unnest(), exp.Literal | exp.Neg):
        written.replace(exp.cast(written.copy(), _T.INT))
    if isinstance(node, exp.Trunc) or kind is None or kind.kind != "double" or kind == QUOTIENT:
        return None
    digits = node.args.get("decimals") or exp.Literal.number(0)
    return exp.Anonymous(this="ROUND_EVEN", expressions=[node.this.copy(), digits.copy()])


def _cast(node: exp.Expr, typed: Typed, context: Context) -> _Found:
    assert isinstance(node, exp.Cast)
    given, target = typed.of(node.this), typed.infer(node)
    if target is None or given is None:
        return None
    if target.kind == "string":
        length = node.to.expressions
        whole = cast_text(node.this, given)
        if length:
            return exp.Anonymous(this="MYSQL_LEFT", expressions=[whole, length[0].this.copy()])
        return whole
    if target.kind == "decimal":
        return _to_decimal(node, given)
    if target.is_integer and given.kind == "string":
        number = exp.Anonymous(this="MYSQL_TEXT_INTEGER", expressions=[node.this.copy()])
        return number if node.to.this is _T.BIGINT else exp.cast(number, node.to.copy())
    return None


def _to_decimal(node: exp.Cast, given: SqlType) -> _Found:
    """What does not fit is the largest number of the type, with its sign."""
    if not (given.is_number or given.kind in ("boolean", "string")) or _fits(node):
        return None
    digits = [int(part.name) for part in node.to.expressions] or [10]
    scale = digits[1] if len(digits) > 1 else 0
    nines = "9" * digits[0]
    most = f"{nines[: digits[0] - scale] or '0'}.{nines[digits[0] - scale :]}".rstrip(".")
    number = exp.cast(node.this.copy(), _T.BIGINT) if given.kind == "boolean" else node.this.copy()
    read = number
    if given.kind == "string":
        number, read = macro("TEXT_NUMBER", number), macro("NUMBER_PREFIX", number)
    tried = exp.TryCast(this=read.copy(), to=node.to.copy())
    return macro("CLAMPED", number, tried, exp.cast(exp.Literal.number(most), node.to.copy()))


def _fits(node: exp.Cast) -> bool:
    literal = node.this.this if isinstance(node.this, exp.Neg) else node.this
    digits = [int(part.name) for part in node.to.expressions] or [10]
    whole = (
        str(literal.this).partition(".")[0]
        if isinstance(literal, exp.Literal) and not literal.is_string
        else ""
    )
    return whole.isdigit() and len(whole) < digits[0] - (digits[1] if len(digits) > 1 else 0)


def _group_concat(node: exp.Expr, typed: Typed, context: Context) -> _Found:
    """DISTINCT texts in the order of something else, which the engine refuses: of each text its first."""
    order = node.this
    distinct = order.this if isinstance(order, exp.Order) else None
    if not isinstance(distinct, exp.Distinct) or all(
        each.this in distinct.expressions for each in order.expressions
    ):
        return None
    directions = {bool(each.args.get("desc")) for each in order.expressions}
    if len(distinct.expressions) != 1 or len(directions) != 1:
        raise UnsupportedSql(
            f"unsupported SQL: {user_sql(node)[:200]}",
            expected="one expression behind DISTINCT, and one direction of ORDER BY",
        )
    (value,) = distinct.expressions
    kind = typed.of(value)
    text = value.copy() if kind is None or kind == STRING else cast_text(value, kind)
    keys = [
        part for each in order.expressions for part in (each.this.is_(exp.null()).not_(), each.this.copy())
    ]
    pair = exp.Anonymous(
        this="ROW", expressions=[exp.Anonymous(this="ROW", expressions=keys), macro("TEXT", text)]
    )
    pairs = exp.Anonymous(this="LIST", expressions=[exp.Distinct(expressions=[pair])])
    separator = node.args.get("separator") or exp.Literal.string(",")
    return macro("JOINED", pairs, separator, exp.Literal.string("DESC" if directions == {True} else "ASC"))


_REWRITES: dict[type[exp.Expr], _Rewrite] = {
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Abs, exp.Mod, exp.IntDiv, exp.Div), _arithmetic),
    **dict.fromkeys((exp.DateAdd, exp.DateSub, exp.TimestampAdd), _moved),
    **dict.fromkeys((exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseNot), _bits),
    **dict.fromkeys(
        (exp.Ceil, exp.Floor, exp.Sign, exp.Sin, exp.Cos, exp.Tan, exp.Atan, exp.Atan2, exp.Degrees),
        _of_number,
    ),
    **dict.fromkeys((exp.Radians,), _of_number),
    **dict.fromkeys((exp.And, exp.Or, exp.Xor, exp.Not, exp.Where, exp.Having, exp.If), _condition),
    **dict.fromkeys((exp.Case, exp.Coalesce, exp.Greatest, exp.Least), _choice),
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ), compare_pair),
    **dict.fromkeys((exp.Sum, exp.Avg), _over_rows),
    exp.Anonymous: by_types,
    exp.Between: compare_range,
    exp.In: compare_in,
    exp.Nullif: compare_nullif,
    exp.Like: like,
    **dict.fromkeys((exp.Round, exp.Trunc), _round),
    **dict.fromkeys(
        (exp.Hour, exp.Minute, exp.Second, exp.Quarter, exp.Dayname, exp.LastDay, exp.Extract), _part
    ),
    exp.Cast: _cast,
    exp.NumberToStr: grouped,
    exp.GroupConcat: _group_concat,
}
