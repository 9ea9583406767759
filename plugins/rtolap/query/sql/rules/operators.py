"""Operators, choices and casts over typed operands: written so that MySQL's answer comes, or a clear refusal.

| written | MySQL | the engine |
|---|---|---|
| integers with `+ - *` | 64 bits, and a SUM has more | 32 bits where both are |
| `a % 0`, `a DIV 0` | NULL | an error |
| text beside a number | a double | a rounded integer, or an error |
| CASE, COALESCE, … over decimals of several scales | the largest scale | of a SUM the smallest |
| a choice of text and something else | text | an error |
| booleans as numbers and as text | 1 and 0 | TRUE and FALSE, or an error |
| `ROUND` of a double | half to even | half away from zero |

Comparisons are in `comparisons`, bits in `bits`, INTERVALs in `moments`, regular expressions in `patterns`.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from rtolap.base.errors import UnsupportedSql
from rtolap.query.sql.dialect import rewritten_sql
from rtolap.query.sql.rules.bits import bit_totals, bits, filtered_bits
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
from rtolap.query.sql.rules.moments import moved
from rtolap.query.sql.rules.mysql_functions import by_types, hexadecimal
from rtolap.query.sql.rules.patterns import pattern
from rtolap.query.sql.rules.texts import cast_text, grouped, like, texts
from rtolap.query.sql.rules.totals import TOTAL
from rtolap.query.sql.types import BIGINT, DECIMAL_DIGITS, QUOTIENT, STRING, SqlType

_T = exp.DType
_DOUBLE_DIGITS = 15  # behind the point of a double that DIV takes
_CLOCK = frozenset(("HOUR", "MINUTE", "SECOND"))
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
        return moved(node, typed, context)
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
        return _divided(node, kinds, typed)
    return None


def _divided(node: exp.Expr, kinds: list[SqlType | None], typed: Typed) -> _Found:
    whole = all(kind is not None and (kind.is_integer or kind.kind in ("boolean", "null")) for kind in kinds)
    divisor = node.expression.unnest()
    is_safe = isinstance(divisor, exp.Literal) and str(divisor.this).strip("0.") != ""
    if isinstance(node, exp.Mod):
        _same_scale(node, kinds, typed)
        name = None if is_safe else "MYSQL_MODULO"
    elif whole:
        name = None if is_safe else "MYSQL_DIVIDED"
    else:
        return _whole_part(node, kinds)
    if name is None:
        return None
    return exp.Anonymous(this=name, expressions=[node.this.unnest().copy(), node.expression.unnest().copy()])


def _same_scale(node: exp.Expr, kinds: list[SqlType | None], typed: Typed) -> None:
    """Cast decimals to one scale. Decimals of different scales that need more than 38 digits together would
    become doubles."""
    known = [kind for kind in kinds if kind is not None and kind.is_exact]
    if len(known) == len(kinds) and any(kind.kind == "decimal" for kind in known):
        scale = max(kind.scale for kind in known)
        for operand in (node.this, node.expression):
            scaled = _decimal(operand.copy(), scale)
            operand.replace(scaled)
            typed.note(scaled, SqlType("decimal", scale))


def _whole_part(node: exp.Expr, kinds: list[SqlType | None]) -> exp.Expr:
    """Return DIV of fractions, exactly: of the decimal that a double reads as, not of its bits."""
    scale, operands = 0, []
    for operand, kind in zip((node.this, node.expression), kinds, strict=True):
        if kind is None and operand.find(exp.Parameter):  # which is bound later
            operands.append(operand.unnest().copy())
            continue
        if kind is None or kind == QUOTIENT or not (kind.is_number or kind.kind in ("boolean", "null")):
            raise UnsupportedSql(
                f"unsupported SQL: {rewritten_sql(node)[:200]}",
                expected="DIV of integers, decimals and doubles",
            )
        if kind.kind == "double":
            scale = _DOUBLE_DIGITS
            operands.append(macro("EXACT", operand.unnest()))
        else:
            scale = max(scale, kind.scale)
            operands.append(operand.unnest().copy())
    return macro("WHOLE_PART", *(_decimal(each, scale) for each in operands))


def _decimal(value: exp.Expr, scale: int) -> exp.Expr:
    """Return a cast to DECIMAL. `exp.cast` would leave a CAST to another DECIMAL as it is."""
    return exp.Cast(this=value, to=exp.DataType.build(f"DECIMAL({DECIMAL_DIGITS}, {scale})"))


def _whole_already(node: exp.Expr, typed: Typed, context: Context) -> _Found:
    """Return FLOOR and CEIL of an integer as the integer; the engine would make a double of it."""
    kind = _as_number(node.this, typed)
    return exp.paren(node.this.copy()) if kind is not None and kind.is_integer else None


def _as_number(operand: exp.Expr, typed: Typed) -> SqlType | None:
    """Turn an operand into a number, text into a double and a boolean into an integer. Return its type."""
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
            f"unsupported SQL: {rewritten_sql(node)[:200]} counts with a date as with a number",
            expected="an INTERVAL, DATEDIFF or TIMESTAMPDIFF",
        )


def _choice(node: exp.Expr, typed: Typed, context: Context) -> _Found:
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


def _converted(branch: exp.Expr, given: SqlType, kind: SqlType) -> _Found:
    """Return a branch of a choice of another type, as the choice's."""
    if kind.kind == "string":
        return cast_text(branch, given)
    if kind.kind == "decimal" and (given.is_exact or given.kind == "boolean"):
        whole = exp.cast(branch.copy(), _T.BIGINT) if given.kind == "boolean" else branch.copy()
        return _decimal(whole, kind.scale)
    return exp.cast(branch.copy(), _T.BIGINT) if given.kind == "boolean" else None


def _as_doubles(node: exp.Expr, typed: Typed) -> bool:
    """Let GREATEST and LEAST of texts and numbers compare numbers; return whether they do."""
    operands = branches(node)
    kinds = [typed.of(each) for each in operands]
    if not all(k is not None and (k.is_number or k.kind in ("string", "boolean", "null")) for k in kinds):
        return False
    for each in operands:
        _as_number(each, typed)
    return True


def _of_number(node: exp.Expr, typed: Typed, context: Context) -> _Found:
    """Have functions of numbers read a text as a number."""
    for operand in (node.this, node.args.get("expression")):
        if isinstance(operand, exp.Expr) and typed.of(operand) == STRING:
            _as_number(operand, typed)
    return None


def _condition(node: exp.Expr, typed: Typed, context: Context) -> _Found:
    """Let a text as a condition hold if the number that it begins with is not 0."""
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
    """Let SUM and AVG take booleans and texts as numbers. Moments, which the engine would average as such,
    are refused."""
    if not isinstance(node.this, exp.Distinct):
        kind = _as_number(node.this, typed)
        if kind is not None and (kind.is_moment or kind.kind in ("time", "binary")):
            raise UnsupportedSql(
                f"unsupported SQL: {rewritten_sql(node)[:200]} counts with a {kind.kind} as with a number",
                expected="numbers",
                action="take MIN or MAX, or UNIX_TIMESTAMP of it",
            )
    return None


def _part(node: exp.Expr, typed: Typed, context: Context) -> _Found:
    """Let HOUR('…') and its like read a text as a moment."""
    moment = node.expression if isinstance(node, exp.Extract) else node.this
    kind = typed.of(moment)
    if kind is not None and kind.kind == "null":
        moment.replace(exp.cast(moment.copy(), _T.TIMESTAMP))
    if kind is not None and kind.kind == "string":
        unit = str(node.this.name).upper() if isinstance(node, exp.Extract) else node.key.upper()
        clock = macro("CLOCK_TEXT", moment) if unit in _CLOCK else moment.copy()
        moment.replace(exp.cast(clock, _T.TIMESTAMP))
    return None


def _count_rows(node: exp.Expr, typed: Typed, context: Context) -> _Found:
    """Return COUNT(DISTINCT a, b), which counts rows without a NULL."""
    distinct = node.this
    if not isinstance(distinct, exp.Distinct) or len(distinct.expressions) < 2:
        return None
    lacks = exp.or_(
        *(exp.Is(this=each.copy(), expression=exp.null()) for each in distinct.expressions), copy=False
    )
    row = exp.Anonymous(this="ROW", expressions=[each.copy() for each in distinct.expressions])
    whole = exp.case().when(lacks, exp.null()).else_(row)
    return exp.Count(this=exp.Distinct(expressions=[whole]))


def _round(node: exp.Expr, typed: Typed, context: Context) -> _Found:
    kind, written = _as_number(node.this, typed), node.args.get("decimals")
    if written is not None and not isinstance(written.unnest(), exp.Literal | exp.Neg):
        written.replace(exp.cast(written.copy(), _T.INT))
    if isinstance(node, exp.Trunc) or kind is None or kind.kind != "double" or kind == QUOTIENT:
        return None
    digits = node.args.get("decimals") or exp.Literal.number(0)
    return macro("ROUND_EVEN", node.this, digits)


def _cast(node: exp.Expr, typed: Typed, context: Context) -> _Found:
    assert isinstance(node, exp.Cast)
    if node.to.this in (_T.DATETIME, _T.TIMESTAMP) and node.to.expressions:
        if node.to.expressions[0].name != "6":
            raise UnsupportedSql(
                f"unsupported SQL: a DATETIME of {node.to.expressions[0].name} digits",
                expected="DATETIME or DATETIME(6), which are one here",
            )
        return exp.cast(node.this.copy(), _T.TIMESTAMP)
    given, target = typed.of(node.this), typed.infer(node)
    if target is None or (given is None and target.kind != "string"):
        return None
    if target.kind == "string":
        length = node.to.expressions
        whole = exp.cast(node.this.copy(), _T.TEXT) if given is None else cast_text(node.this, given)
        if length:
            return exp.Anonymous(this="MYSQL_LEFT", expressions=[whole, length[0].this.copy()])
        return whole
    if given is None:
        return None
    if target.kind == "decimal":
        return _to_decimal(node, given)
    if target.is_integer and given.kind == "string":
        number = exp.Anonymous(this="MYSQL_TEXT_INTEGER", expressions=[node.this.copy()])
        return number if node.to.this is _T.BIGINT else exp.cast(number, node.to.copy())
    return None


def _to_decimal(node: exp.Cast, given: SqlType) -> _Found:
    """Cast to a decimal.

    A value that does not fit becomes the type's largest number, with the value's sign.
    """
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
    """Return GROUP_CONCAT of DISTINCT texts in the order of something else, which the engine refuses: of each
    text its first."""
    order = node.this
    distinct = order.this if isinstance(order, exp.Order) else None
    if not isinstance(distinct, exp.Distinct) or all(
        each.this in distinct.expressions for each in order.expressions
    ):
        return None
    directions = {bool(each.args.get("desc")) for each in order.expressions}
    if len(distinct.expressions) != 1 or len(directions) != 1:
        raise UnsupportedSql(
            f"unsupported SQL: {rewritten_sql(node)[:200]}",
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
    **dict.fromkeys((exp.DateAdd, exp.DateSub, exp.TimestampAdd), moved),
    **dict.fromkeys((exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.BitwiseNot), bits),
    **dict.fromkeys((exp.BitwiseLeftShift, exp.BitwiseRightShift), bits),
    **dict.fromkeys((exp.BitwiseAndAgg, exp.BitwiseOrAgg, exp.BitwiseXorAgg), bit_totals),
    exp.Filter: filtered_bits,
    **dict.fromkeys((exp.RegexpLike, exp.RegexpReplace), pattern),
    **dict.fromkeys(
        (exp.Sign, exp.Sin, exp.Cos, exp.Tan, exp.Atan, exp.Atan2, exp.Degrees, exp.Radians), _of_number
    ),
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
    **dict.fromkeys((exp.Floor, exp.Ceil), _whole_already),
    **dict.fromkeys(
        (exp.Hour, exp.Minute, exp.Second, exp.Quarter, exp.Dayname, exp.LastDay, exp.Extract), _part
    ),
    exp.Cast: _cast,
    exp.Hex: hexadecimal,
    exp.Count: _count_rows,
    exp.NumberToStr: grouped,
    exp.GroupConcat: _group_concat,
}
