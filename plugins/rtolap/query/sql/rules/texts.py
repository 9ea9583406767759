"""The rules of texts: operands that are none where one is wanted, patterns of LIKE, functions of texts."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from rtolap.base.errors import SqlSyntaxError, UnsupportedSql
from rtolap.query.approval.own_functions import SketchCall
from rtolap.query.sql.dialect import rewritten_sql
from rtolap.query.sql.rules.context import Context
from rtolap.query.sql.rules.expression_types import Typed
from rtolap.query.sql.rules.macro_calls import macro
from rtolap.query.sql.rules.mysql_functions import macro_with
from rtolap.query.sql.types import DECIMAL_DIGITS, QUOTIENT, SqlType

_ALL = (exp.Concat, exp.ConcatWs)
_BOTH = (exp.DPipe, exp.Like, exp.RegexpLike)
_FIRST = (exp.Upper, exp.Lower, exp.Trim, exp.Length, exp.Reverse, exp.StrPosition)
_MACROS = {  # how many of their arguments are texts, which stand first
    **{
        f"mysql_{name}": 1
        for name in (
            "left",
            "right",
            "from",
            "substring",
            "lpad",
            "rpad",
            "repeat",
            "ascii",
            "ord",
            "conv",
            "text",
            "bytes",
            "group",
            "repeated",
            "to_base64",
            "json",
            "json_unquote",
            "json_valid",
        )
    },
    **{f"mysql_{name}": 2 for name in ("substring_index", "find_in_set", "strcmp", "regexp_substr")},
    **{f"mysql_{name}": 2 for name in ("ltrim", "rtrim")},
    "mysql_replace": 3,
}
_OF_BYTES = frozenset(("unhex", "from_base64", "mysql_unhex", "mysql_from_base64"))
_FORMAT_DIGITS_MAX = 30
_ROUNDED_DIGITS_MAX = 15  # a double has no tie behind more of them
_GROWING = frozenset(("MYSQL_REPEAT", "MYSQL_LPAD", "MYSQL_RPAD"))
TEXT_BYTES_MAX = 64 << 10  # of a text that REPEAT, SPACE, LPAD or RPAD makes, in a statement over rows
ONE_ROW_BYTES_MAX = 32 << 20  # of all of them together, in a statement of one row
Rewrite = Callable[[exp.Expr], exp.Expr | None]


def texts(node: exp.Expr, typed: Typed) -> None:
    """Turn numbers, booleans and dates among the operands into the text that MySQL shows of them."""
    for operand in _operands(node):
        kind = typed.of(operand)
        if kind is None or kind.kind in ("string", "null"):
            continue
        if kind.kind != "binary" or isinstance(node, (*_ALL, exp.DPipe, exp.GroupConcat)):
            text = cast_text(operand, kind)
            operand.replace(text)
            typed.note(text, SqlType("string"))


def cast_text(node: exp.Expr, kind: SqlType) -> exp.Expr:
    value = node.copy()
    if kind == QUOTIENT or kind.shown == -1:
        raise UnsupportedSql(
            f"unsupported SQL: the text of the quotient or rounded double {rewritten_sql(node)[:200]}",
            expected="as many digits as are wanted",
            action="use CAST(… AS DECIMAL(p, s)) first",
        )
    if kind.shown is not None:
        return macro("FIXED_TEXT", value, exp.Literal.number(min(kind.shown, _FORMAT_DIGITS_MAX)))
    if kind.kind == "binary":
        return macro("BYTES_TEXT", value)
    if kind.kind == "double":
        return exp.Anonymous(this="MYSQL_NUMBER_TEXT", expressions=[value])
    if kind.kind == "boolean":
        value = exp.cast(value, exp.DataType.Type.INT)
    return exp.cast(value, exp.DataType.Type.TEXT)


def like(node: exp.Expr, typed: Typed, context: Context) -> exp.Expr | None:
    """Return LIKE with a backslash that escapes, unless ESCAPE says otherwise."""
    if isinstance(node.parent, exp.Escape):
        return None
    pattern = node.expression
    if typed.of(pattern) is not None and not pattern.find(exp.Column, exp.Query):
        value = context.fold(pattern)
        if value is None or (isinstance(value, str) and "\\" not in value):
            return None
    return exp.paren(exp.Escape(this=node.copy(), expression=exp.Literal.string("\\")), copy=False)


def _operands(node: exp.Expr) -> list[exp.Expr]:
    if isinstance(node, _ALL):
        return list(node.expressions)
    if isinstance(node, _BOTH):
        return [node.this, node.expression]
    if isinstance(node, exp.GroupConcat):
        return [_joined_texts(node)]
    if isinstance(node, exp.RegexpReplace):
        return [node.this, node.args["replacement"]]
    if isinstance(node, _FIRST):
        return [node.this]
    if isinstance(node, exp.Anonymous):
        return list(node.expressions[: _MACROS.get(str(node.this).lower(), 0)])
    return []


def _joined_texts(node: exp.Expr) -> exp.Expr:
    """Return the operand of GROUP_CONCAT, within DISTINCT and ORDER BY."""
    operand: exp.Expr = node.this
    while isinstance(operand, exp.Order | exp.Distinct) and (operand.this or len(operand.expressions) == 1):
        operand = operand.this or operand.expressions[0]
    return operand


def _length(node: exp.Expr) -> exp.Expr | None:
    return _bytes(node.this) if node.args.get("binary") else None


def _octet_length(node: exp.Expr) -> exp.Expr:
    return _bytes(only_argument(node))


def _bytes(text: exp.Expr) -> exp.Expr:
    if isinstance(text, SketchCall):
        return exp.Anonymous(this="OCTET_LENGTH", expressions=[text.copy()])
    return exp.Anonymous(this="STRLEN", expressions=[exp.cast(text.copy(), exp.DataType.Type.TEXT)])


def _of_text(node: exp.Expr) -> exp.Expr | None:
    """Return LOWER, which takes numbers and times as the texts that they read as."""
    _refuse_bytes(node)
    if node.this.is_string or isinstance(node.this, exp.Cast):
        return None
    rewritten = node.copy()
    rewritten.set("this", exp.cast(rewritten.this, exp.DataType.Type.TEXT))
    return rewritten


def _refuse_bytes(node: exp.Expr) -> None:
    name = str(node.this.this).lower() if isinstance(node.this, exp.Anonymous) else ""
    if isinstance(node.this, exp.Unhex | exp.FromBase64 | exp.HexString) or name in _OF_BYTES:
        raise UnsupportedSql(
            f"unsupported SQL: {rewritten_sql(node)[:200]}",
            expected="a text: bytes have no case",
            action="use CAST(… AS CHAR) first",
        )


def _upper(node: exp.Expr) -> exp.Expr:
    _refuse_bytes(node)
    return macro("UPPER", node.this if node.this.is_string else exp.cast(node.this, exp.DataType.Type.TEXT))


def _substring(node: exp.Expr) -> exp.Expr:
    start, length = node.args.get("start"), node.args.get("length")
    return macro("FROM" if length is None else "SUBSTRING", node.this, start, length)


def _position(node: exp.Expr) -> exp.Expr | None:
    start = node.args.get("position")
    return None if start is None else macro("LOCATE", node.args["substr"], node.this, start)


def _trim(node: exp.Expr) -> exp.Expr:
    """Take a text off, as often as it is there; nothing but spaces without one."""
    part = node.expression or exp.Literal.string(" ")
    side = str(node.args.get("position") or "BOTH").upper()
    trimmed = node.this
    if side in ("LEADING", "BOTH"):
        trimmed = macro("LTRIM", trimmed, part)
    return macro("RTRIM", trimmed, part) if side in ("TRAILING", "BOTH") else trimmed


def _char(node: exp.Expr) -> exp.Expr:
    return exp.Concat(expressions=[macro("CHAR", each) for each in node.expressions], safe=True)


def _pad(node: exp.Expr) -> exp.Expr:
    name = "LPAD" if node.args.get("is_left") else "RPAD"
    fill = node.args.get("fill_pattern") or exp.Literal.string(" ")
    return macro(name, node.this, node.expression, fill, _text_bytes_max(node))


def _repeat(node: exp.Expr) -> exp.Expr:
    return macro("REPEAT", node.this, node.args["times"], _text_bytes_max(node))


def _space(node: exp.Expr) -> exp.Expr:
    return macro("REPEAT", exp.Literal.string(" "), node.this, _text_bytes_max(node))


def _text_bytes_max(node: exp.Expr) -> exp.Expr:
    """Return the bytes that a text may have that a function makes longer. The engine makes some thousand rows
    of it at a time, unless the whole statement is one row; then all that such functions make together has a
    bound."""
    tree = node.root()
    selects = list(tree.find_all(exp.Select))
    if len(selects) != 1 or selects[0].args.get("from_") is not None:
        return exp.Literal.number(TEXT_BYTES_MAX)
    calls = sum(1 for _ in tree.find_all(exp.Repeat, exp.Space, exp.Pad))
    made = sum(str(each.name).upper() in _GROWING for each in tree.find_all(exp.Anonymous))
    return exp.Literal.number(max(TEXT_BYTES_MAX, ONE_ROW_BYTES_MAX // (calls + made)))


def grouped(node: exp.Expr, typed: Typed, context: Context) -> exp.Expr | None:
    """Return FORMAT, which keeps all digits of an exact number and rounds a double as ROUND does; a zero has
    no sign."""
    kind, digits = typed.of(node.this), int(node.args["format"].name)
    if kind is not None and kind.kind in ("string", "null"):
        number = macro("TEXT_NUMBER", exp.cast(node.this.copy(), exp.DataType.Type.TEXT))
        return _shown_double(node, number, False, digits)
    if kind is None:
        return macro("UNSIGNED_ZERO", node)
    if not (kind.is_exact or kind.kind == "boolean"):
        return _shown_double(node, node.this, kind == QUOTIENT, digits)
    value = (
        exp.cast(node.this.copy(), exp.DataType.Type.BIGINT) if kind.kind == "boolean" else node.this.copy()
    )
    scale = min(digits, kind.scale)
    to = exp.DataType.build(f"DECIMAL({DECIMAL_DIGITS}, {scale})")
    text: exp.Expr = exp.cast(exp.Cast(this=value, to=to), exp.DataType.Type.TEXT)
    text = macro("GROUPED", text)
    zeros = ("" if scale else ".") + "0" * (digits - scale)
    return exp.paren(exp.DPipe(this=text, expression=exp.Literal.string(zeros))) if digits > scale else text


def _shown_double(node: exp.Expr, number: exp.Expr, is_exact: bool, digits: int) -> exp.Expr:
    places = exp.Literal.number(min(digits, _ROUNDED_DIGITS_MAX))
    rounded: exp.Expr = exp.Round(this=number.copy(), decimals=places)
    if not is_exact:
        rounded = macro("ROUND_EVEN", number, places)
    shown = exp.NumberToStr(this=rounded, format=node.args["format"].copy())
    return macro("UNSIGNED_ZERO", shown)


def _format_digits(node: exp.Expr) -> exp.Expr | None:
    """Return the digits of FORMAT, at most 30 behind the point, as in MySQL."""
    digits = node.args.get("format")
    written = digits.unnest() if isinstance(digits, exp.Expr) else None
    if not isinstance(written, exp.Literal) or written.is_string or not str(written.this).isdigit():
        raise UnsupportedSql(
            "unsupported SQL: FORMAT with digits that are not written in the statement",
            expected="FORMAT(x, 2)",
        )
    if len(str(written.this)) < 3 and int(written.this) <= _FORMAT_DIGITS_MAX:
        return None
    rewritten = node.copy()
    rewritten.set("format", exp.Literal.number(_FORMAT_DIGITS_MAX))
    return rewritten


def macro_of(name: str, *operands: str) -> Rewrite:
    """Return what writes a node as a macro of these operands; without any, of the one or two that it has."""
    if operands:
        return lambda node: macro(name, *(node.args.get(operand) for operand in operands))
    return lambda node: macro(name, node.this, node.args.get("expression"))


def only_argument(node: exp.Expr) -> exp.Expr:
    if len(node.expressions) != 1:
        raise SqlSyntaxError(f"bad SQL: {node.this} takes one argument", found=len(node.expressions))
    argument: exp.Expr = node.expressions[0].copy()
    return argument


TEXT_FUNCTIONS: dict[type[exp.Expr], Rewrite] = {
    exp.Left: macro_of("LEFT"),
    exp.Right: macro_of("RIGHT"),
    exp.Substring: _substring,
    exp.StrPosition: _position,
    exp.Pad: _pad,
    exp.Repeat: _repeat,
    exp.Space: _space,
    exp.NumberToStr: _format_digits,
    exp.Ascii: macro_of("ASCII"),
    exp.Length: _length,
    exp.Lower: _of_text,
    exp.Upper: _upper,
    exp.SubstringIndex: macro_of("SUBSTRING_INDEX", "this", "delimiter", "count"),
    exp.Trim: _trim,
    exp.Replace: macro_of("REPLACE", "this", "expression", "replacement"),
    exp.Stuff: macro_of("INSERT", "this", "start", "length", "expression"),
    exp.Chr: _char,
    exp.TimeFromParts: macro_of("MAKETIME", "hour", "min", "sec"),
}
ANONYMOUS_TEXT_FUNCTIONS: dict[str, Rewrite] = {
    "octet_length": _octet_length,
    "ord": lambda node: macro("ORD", only_argument(node)),
    "find_in_set": macro_with("FIND_IN_SET", 2),
}
