"""Regular expressions: MySQL's classes hold all letters and digits of Unicode, the engine's those of
ASCII."""

from __future__ import annotations

import re

from sqlglot import exp

from rtolap.base.errors import UnsupportedSql
from rtolap.query.sql.dialect import rewritten_sql
from rtolap.query.sql.rules.context import Context
from rtolap.query.sql.rules.expression_types import Typed

# What stands within brackets for each class of POSIX.
_POSIX = {
    "alpha": r"\p{L}",
    "digit": r"\p{Nd}",
    "alnum": r"\p{L}\p{Nd}",
    "upper": r"\p{Lu}",
    "lower": r"\p{Ll}",
    "space": r"\s\x0b\x{85}\p{Z}",
    "blank": r"\t\p{Zs}",
    "xdigit": "0-9a-fA-F",
    "cntrl": r"\p{Cc}",
}
_ESCAPED = {"d": _POSIX["digit"], "w": r"\p{L}\p{N}_", "s": _POSIX["space"]}
_CLASS = re.compile(r"\[:(\^?)(\w+):\]")
# (?= and its like, \1, \b, \h, \R, a++ and \Q: the engine has none of them, or others
_STRANGE = re.compile(r"\\[1-9bBhHRXKGQEkgpPZzANvV]|\(\?(?!:)|[*+?}]\+")


def pattern(node: exp.Expr, typed: Typed, context: Context) -> None:
    """Write out the classes of a constant pattern of REGEXP and REGEXP_REPLACE."""
    written = node.expression
    if isinstance(written, exp.Null):
        return
    if written.find(exp.Column, exp.Query, exp.Rand):
        raise UnsupportedSql(
            f"unsupported SQL: the pattern {rewritten_sql(written)[:100]} comes out of rows",
            expected="a constant",
        )
    try:
        value = context.fold(written)
    except LookupError:  # it will be bound later
        return
    if isinstance(value, str):
        written.replace(exp.Literal.string(translated(value)))


def translated(pattern: str) -> str:
    """Return the pattern in the engine's words. Raises UnsupportedSql for what it has not."""
    strange = _STRANGE.search(pattern.replace("\\\\", ""))
    if strange is not None:
        raise UnsupportedSql(
            f"unsupported SQL: the regular expression {pattern[:100]!r}",
            found=repr(strange[0]),
            expected="classes, groups, counts, ^ and $",
        )
    pieces, at, in_brackets = [], 0, False
    while at < len(pattern):
        posix = _CLASS.match(pattern, at) if in_brackets else None
        escaped = pattern[at + 1 : at + 2] if pattern[at] == "\\" else ""
        if posix is not None:
            if posix[1] or posix[2] not in _POSIX:
                raise UnsupportedSql(
                    f"unsupported SQL: {posix[0]} in a regular expression", expected=", ".join(_POSIX)
                )
            pieces.append(_POSIX[posix[2]])
            at = posix.end()
        elif escaped:
            inside = _ESCAPED.get(escaped.lower())
            if inside is None:
                pieces.append(pattern[at : at + 2])
            elif escaped.isupper():
                if in_brackets:
                    raise UnsupportedSql(f"unsupported SQL: \\{escaped} in brackets of a regular expression")
                pieces.append(f"[^{inside}]")
            else:
                pieces.append(inside if in_brackets else f"[{inside}]")
            at += 2
        else:
            if in_brackets and pattern[at] == "]" and pieces[-1] not in ("[", "[^"):
                in_brackets = False
            elif not in_brackets and pattern[at] == "[":
                in_brackets = True
                if pattern[at + 1 : at + 2] == "^":
                    pieces.append("[^")
                    at += 2
                    continue
            elif in_brackets and pattern[at] in "[]":
                pieces.append("\\" + pattern[at])
                at += 1
                continue
            pieces.append(pattern[at])
            at += 1
    return "".join(pieces)
