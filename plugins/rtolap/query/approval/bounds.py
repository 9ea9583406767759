"""Bounds on the size of a statement: found in linear passes, before anything else looks at it.

The parser's own words are counted, so that no quoting hides any of them. Making words out of a text is slow,
and no other thread runs meanwhile: so the text is looked at first, and has at most as many of them as it has
parts, whatever is quoted in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from sqlglot.tokenizer_core import Token, TokenType

from rtolap.base.errors import QueryError, SqlSyntaxError
from rtolap.query.approval.value_lists import ShortText, shortened

STATEMENT_BYTES_MAX = 1 << 20  # a longer text is a mistake
PARTS_MAX = 60_000  # runs of letters and digits, marks; those of long lists of values do not count
WORDS_MAX = (
    10_000  # names, keywords, operators: each costs the parser and the rules some tenth of a millisecond
)
NESTING_MAX = 64  # of parentheses and CASE

_PART = re.compile(r"\w++|[^\s\w]")
_VALUES = frozenset(
    (TokenType.STRING, TokenType.NUMBER, TokenType.COMMA, TokenType.NULL, TokenType.PLACEHOLDER)
)
_OPENING = frozenset((TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE))
_CLOSING = frozenset((TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END))


def check_text(sql: str) -> ShortText:
    """Return the text without its long lists. Raises QueryError for a text that is too long, or of too many
    parts, to be looked at."""
    if len(sql.encode(errors="replace")) > STATEMENT_BYTES_MAX:
        raise QueryError("the statement is too long", expected=f"at most {STATEMENT_BYTES_MAX} bytes")
    short = shortened(sql)
    check_parts(short.text)
    return short


def check_parts(sql: str) -> None:
    """Raise QueryError for a text of too many parts; its long lists have been taken out."""
    if len(sql) <= PARTS_MAX:
        return
    for count, _ in enumerate(_PART.finditer(sql)):
        if count >= PARTS_MAX:
            raise QueryError(
                "the statement has too many parts",
                expected=f"at most {PARTS_MAX} words and marks, those in quotes too",
                action="bind long texts as parameters, or join with a table",
            )


def check_tokens(tokens: Iterable[Token]) -> None:
    """Raise QueryError for a statement that is too deeply nested, or of too many words."""
    words = nesting = 0
    for token in tokens:
        kind = token.token_type
        words += kind not in _VALUES
        nesting += (kind in _OPENING) - (kind in _CLOSING)
        if nesting > NESTING_MAX:
            raise SqlSyntaxError(
                "bad SQL: the statement is too deeply nested", expected=f"at most {NESTING_MAX}"
            )
        if words > WORDS_MAX:
            raise QueryError(
                "the statement has too many parts",
                expected=f"at most {WORDS_MAX} names, keywords and operators",
                action="write IN (…) for many comparisons, or join with a table",
            )
