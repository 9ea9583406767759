"""The text of a statement as every server reads it, before it is classified: linear in its length."""

from __future__ import annotations

import re

from rtolap.query.approval import bounds
from rtolap.query.sql.dialect import quoted_with_backticks

_COMMENT = re.compile(r"\A(?:\s++|/\*(?!!)(?:[^*]|\*(?!/))*+\*/|--[ \t][^\n]*+\n?|#[^\n]*+\n?)++")
_PIECE = re.compile(
    r"""'(?:[^'\\]|\\.|'')*+'?|"(?:[^"\\]|\\.|"")*+"?|`[^`]*+`?|--[ \t][^\n]*+|#[^\n]*+"""
    r"|(?P<plain>/\*(?!!))|(?P<conditional>/\*!\d*+\s?)",
    re.DOTALL,
)


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
