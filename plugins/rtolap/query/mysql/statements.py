"""What kind of statement a text is, before it is parsed."""

from __future__ import annotations

import re

from rtolap.query.dialect import quoted_with_backticks

_COMMENT = re.compile(r"\A(?:\s+|/\*(?!!).*?\*/|--[ \t][^\n]*\n?|#[^\n]*\n?)+", re.DOTALL)
_CONDITIONAL = re.compile(r"/\*!\d*\s?(.*?)\*/", re.DOTALL)
_WORDS = re.compile(
    r"(?:begin|commit|rollback|start\s+transaction|savepoint|release|lock|unlock|flush)\b", re.I
)
_QUERY = re.compile(r"(?:select|with|\(|(?:explain|desc|describe)\s+(?:analyze\s+)?(?:select|with|\())", re.I)

_DIAGNOSTIC = re.compile(
    r"(?:show\s+(?:count\s*\(\s*\*\s*\)\s*)?(?:warnings|errors)\b"
    r"|select\s+@@(?:session\.|local\.)?(?:warning|error)_count\b)",
    re.I,
)

KILL = re.compile(r"kill\s+(?:(query|connection)\s+)?(\d+)\s*;?\s*\Z", re.I)
USE = re.compile(r"use\s+(\S+?)\s*;?\s*\Z", re.I)
SET = re.compile(r"set\b(.*)", re.I | re.DOTALL)


def plain(sql: str, *, ansi_quotes: bool = False) -> str:
    """Without leading comments; `/*! … */` is for MySQL, so its content counts.

    With `ansi_quotes` names in double quotes are in backticks afterwards. Raises QueryError for quotes that
    are not closed.
    """
    text = _without_comments(sql)
    return quoted_with_backticks(text) if ansi_quotes else text


def _without_comments(sql: str) -> str:
    return _COMMENT.sub("", _CONDITIONAL.sub(r"\1", sql)) if "/*!" in sql else _COMMENT.sub("", sql)


def is_query(text: str) -> bool:
    """True for what is parsed and planned: SELECT, WITH, and EXPLAIN of these."""
    return _QUERY.match(text) is not None


def is_diagnostic(text: str) -> bool:
    """True for what asks about the statement before, whose warnings then stay."""
    return _DIAGNOSTIC.match(text) is not None


def is_transaction(text: str) -> bool:
    """True for words that have nothing to do: nothing is written, so every transaction is an empty one."""
    return _WORDS.match(text) is not None
