"""Functions of texts that the engine has not: bases, checksums, choices by number, values within JSON."""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from rtolap.base.errors import SqlSyntaxError, UnsupportedSql
from rtolap.query.approval.own_functions import SketchCall
from rtolap.query.engine_functions.checksums import CRC32
from rtolap.query.sql.rules.macro_calls import macro
from rtolap.query.sql.rules.mysql_functions import exactly, macro_with

_PATH = re.compile(r"\$(?:\s*\.\s*(?:[A-Za-z_]\w*|\"[^\"\\]*\")|\[\d{1,9}\])*\s*")
_COMPARED = (exp.Predicate, exp.Between, exp.In, exp.Binary)


def _elt(node: exp.Expr) -> exp.Expr:
    if len(node.expressions) < 2:
        raise SqlSyntaxError("bad SQL: wrong number of arguments of ELT", expected="2 or more")
    number, *texts = node.expressions
    case = exp.case()
    for position, text in enumerate(texts, start=1):
        is_chosen = exp.EQ(
            this=exp.cast(number.copy(), exp.DType.BIGINT), expression=exp.Literal.number(position)
        )
        case = case.when(is_chosen, macro("TEXT", text))
    return case


def _crc32(node: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=CRC32.upper(), expressions=[macro("BYTES", *exactly(node, 1))])


def _regexp_substr(node: exp.Expr) -> exp.Expr:
    text, pattern, *rest = exactly(node, 2, 3, 4)
    ones = [exp.Literal.number(1)] * (2 - len(rest))
    return macro("REGEXP_SUBSTR", text, pattern, *rest, *ones)


def _json_extract(node: exp.Expr) -> exp.Expr:
    if len(node.expressions) < 2:
        raise SqlSyntaxError("bad SQL: wrong number of arguments of JSON_EXTRACT", expected="2 or more")
    text, *paths = node.expressions
    values = [macro("JSON", text, _path(path)) for path in paths]
    if len(values) > 1:
        return macro("JSON_LIST", exp.Array(expressions=values))
    parent = node.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    # a value beside another is compared as what it is, not as it is written
    return macro("JSON_UNQUOTE", *values) if isinstance(parent, _COMPARED) else values[0]


def _path(written: exp.Expr) -> exp.Expr:
    text = str(written.this) if isinstance(written, exp.Literal) and written.is_string else None
    if text is None or _PATH.fullmatch(text) is None:
        raise UnsupportedSql(
            "unsupported SQL: a JSON path that is not of keys and positions, written in the statement",
            expected="a text such as '$.a[0].\"b c\"'",
        )
    return exp.Literal.string(text.strip())


def to_base64(node: exp.Expr) -> exp.Expr:
    of_bytes = isinstance(node.this, SketchCall | exp.Unhex | exp.FromBase64 | exp.HexString)
    return macro("BYTES_BASE64" if of_bytes else "TO_BASE64", node.this)


CONVERSION_FUNCTIONS: dict[str, Callable[[exp.Expr], exp.Expr | None]] = {
    "conv": macro_with("CONV", 3),
    "crc32": _crc32,
    "elt": _elt,
    "json_extract": _json_extract,
    "json_unquote": macro_with("JSON_UNQUOTE", 1),
    "json_valid": macro_with("JSON_VALID", 1),
    "mid": macro_with("SUBSTRING", 3),
    "regexp_substr": _regexp_substr,
    "strcmp": macro_with("STRCMP", 2),
}
