"""The kind of a statement, told from its text before it is parsed: linear in its length, whatever stands in
it."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from rtolap.query.approval import bounds
from rtolap.query.sql.dialect import quoted_with_backticks

_COMMENT = re.compile(r"\A(?:\s++|/\*(?!!)(?:[^*]|\*(?!/))*+\*/|--[ \t][^\n]*+\n?|#[^\n]*+\n?)++")
_PIECE = re.compile(
    r"""'(?:[^'\\]|\\.|'')*+'?|"(?:[^"\\]|\\.|"")*+"?|`[^`]*+`?|--[ \t][^\n]*+|#[^\n]*+"""
    r"|(?P<plain>/\*(?!!))|(?P<conditional>/\*!\d*+\s?)",
    re.DOTALL,
)
_WORDS = re.compile(
    r"(?:begin|commit|rollback|start\s++transaction|savepoint|release|lock|unlock|flush)\b", re.I
)
_QUERY = re.compile(
    r"(?:select|with|\(|(?:explain|desc|describe)\s++(?:analyze\s++)?(?:select|with|\())", re.I
)
_DIAGNOSTIC = re.compile(
    r"(?:show\s++(?:count\s*+\(\s*+\*\s*+\)\s*+)?(?:warnings|errors)\b"
    r"|select\s++@@(?:session\.|local\.)?(?:warning|error)_count\b)",
    re.I,
)
_SET = re.compile(r"set\b(.*)", re.I | re.DOTALL)
_NUMBER = re.compile(r"\d{1,10}")


class Kill(NamedTuple):
    what: Literal["query", "connection"]
    connection_id: int


def plain(sql: str, *, ansi_quotes: bool = False) -> str:
    """Without leading comments; `/*! … */` is for MySQL, so its content counts.

    With `ansi_quotes` names in double quotes are in backticks afterwards. Raises QueryError for quotes that
    are not closed, and for a statement beyond `approval.bounds`.
    """
    bounds.check_text(sql)
    text = _COMMENT.sub("", _with_conditionals(sql) if "/*!" in sql else sql)
    return quoted_with_backticks(text) if ansi_quotes else text


def _with_conditionals(sql: str) -> str:
    """Conditional comments become their content; not those within quotes or other comments."""
    pieces, at = [], 0
    while (piece := _PIECE.search(sql, at)) is not None:
        end = sql.find("*/", piece.end()) if piece.lastgroup else piece.end()
        if end < 0:
            break  # a comment that nothing closes, so no other is closed either
        if piece.lastgroup == "conditional":
            pieces += [sql[at : piece.start()], sql[piece.end() : end]]
            at = end + 2
        else:
            past = end + 2 if piece.lastgroup else end
            pieces.append(sql[at:past])
            at = past
    return "".join(pieces) + sql[at:]


def is_query(text: str) -> bool:
    """True for what is parsed and planned: SELECT, WITH, and EXPLAIN of these."""
    return _QUERY.match(text) is not None


def is_diagnostic(text: str) -> bool:
    """True for what asks about the statement before, whose warnings then stay."""
    return _DIAGNOSTIC.match(text) is not None


def is_transaction(text: str) -> bool:
    """True for words that have nothing to do: nothing is written, so every transaction is an empty one."""
    return _WORDS.match(text) is not None


def set_of(text: str) -> str | None:
    """Return the text behind SET; None for another statement."""
    match = _SET.match(text)
    return None if match is None else match[1]


def use_of(text: str) -> str | None:
    """The database of a USE; None for another statement."""
    words = _words(text, 2)
    return words[1] if len(words) == 2 and words[0].lower() == "use" else None


def kill_of(text: str) -> Kill | None:
    words = [word.lower() for word in _words(text, 3)]
    if not 2 <= len(words) <= 3 or words[0] != "kill" or _NUMBER.fullmatch(words[-1]) is None:
        return None
    if len(words) == 3 and words[1] not in ("query", "connection"):
        return None
    return Kill("query" if words[1] == "query" else "connection", int(words[-1]))


def _words(text: str, most: int) -> list[str]:
    """Return the words of the statement without its `;`: one more than `most` if there are more."""
    return text.rstrip().removesuffix(";").rstrip().split(None, most)
