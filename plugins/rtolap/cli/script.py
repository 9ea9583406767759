"""Texts of several statements: parted at `;`, but not within quotes and comments."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

from rtolap.query.sql.dialect import RtolapSql


@dataclass(frozen=True)
class Script:
    """`is_complete`: the last one is ended by `;`. `unfinished`: the text, if a quote or comment is open."""

    statements: tuple[str, ...]
    is_complete: bool
    unfinished: str | None = None


def read_script(text: str) -> Script:
    """Statements keep their comments; pieces of comments alone are none."""
    try:
        tokens = RtolapSql().tokenize(text)
    except TokenError:
        return Script((), False, text.strip())
    statements, start, has_words = [], 0, False
    for token in tokens:
        if token.token_type is not TokenType.SEMICOLON:
            has_words = True
            continue
        if has_words:
            statements.append(text[start : token.start].strip())
        start, has_words = token.end + 1, False
    if has_words:
        statements.append(text[start:].strip())
    return Script(tuple(statements), not has_words)
