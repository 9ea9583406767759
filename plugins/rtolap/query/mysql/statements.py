"""What kind of statement a text is, before it is parsed."""

from __future__ import annotations

import re

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


def plain(sql: str) -> str:
    """Without leading comments; `/*! … */` is for MySQL, so its content counts."""
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
