"""Classifies the text of a statement for all servers. Each kind is a value.

The work is linear in the length of the text, whatever it contains.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from rtolap.base.errors import SqlSyntaxError
from rtolap.query.approval import bounds
from rtolap.query.sql.dialect import quoted_with_backticks
from rtolap.query.statements.shows import Show, show_of
from rtolap.query.statements.text_prepared import (
    DeallocateStatement,
    ExecuteStatement,
    PrepareStatement,
    text_prepared_of,
)
from rtolap.query.stored.ddl import is_definition

_BLANK_OR_COMMENT = re.compile(r"\s+|/\*(?!!).*?\*/|--[ \t][^\n]*|#[^\n]*", re.DOTALL)
_PIECE = re.compile(
    r"""'(?:[^'\\]|\\.|'')*+'?|"(?:[^"\\]|\\.|"")*+"?|`[^`]*+`?|--[ \t][^\n]*+|#[^\n]*+"""
    r"|(?P<plain>/\*(?!!))|(?P<conditional>/\*!\d*+\s?)",
    re.DOTALL,
)
KINDS_CACHED_MAX = 256  # clients send the same texts again and again
PLAIN_CACHED_MAX, PLAIN_CHARACTERS_MAX = 1_024, 1_024  # of longer texts the work is done again
TEXT_CHARACTERS_MAX = 8_192  # characters

_TRANSACTION = re.compile(
    r"(?:begin|commit|rollback|start\s++transaction|savepoint|release|lock|unlock|flush)\b", re.I
)
_DIAGNOSTIC = re.compile(
    r"(?:show\s++(?:count\s*+\(\s*+\*\s*+\)\s*+)?(?:warnings|errors)\b"
    r"|select\s++@@(?:session\.|local\.)?(?:warning|error)_count\b)",
    re.I,
)
_SET = re.compile(r"set\b(.*)", re.I | re.DOTALL)
_NUMBER = re.compile(r"\d{1,10}")


def plain(sql: str, *, ansi_quotes: bool = False) -> str:
    """Return the statement without leading comments. `/*! … */` is for MySQL, so its content counts.

    With `ansi_quotes` names in double quotes are in backticks afterwards. Raises QueryError for quotes that
    are not closed, and for a statement beyond `approval.bounds`.
    """
    make = _known_plain if len(sql) <= PLAIN_CHARACTERS_MAX else _plain
    return make(sql, ansi_quotes=ansi_quotes)


def _plain(sql: str, *, ansi_quotes: bool) -> str:
    bounds.check_text(sql)
    text = _without_leading_comments(_with_conditionals(sql) if "/*!" in sql else sql)
    return quoted_with_backticks(text) if ansi_quotes else text


_known_plain = lru_cache(PLAIN_CACHED_MAX)(_plain)


def _without_leading_comments(sql: str) -> str:
    """Remove leading comments, a match for each.

    Python before 3.11.5 errs if a possessive group holds a look-ahead.
    """
    at = 0
    while (skipped := _BLANK_OR_COMMENT.match(sql, at)) is not None:
        at = skipped.end()
    return sql[at:]


def _with_conditionals(sql: str) -> str:
    """Replace conditional comments by their content, except within quotes or other comments."""
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


@dataclass(frozen=True)
class Nothing:
    """A statement that is a `;` alone."""


@dataclass(frozen=True)
class TransactionWord:
    """BEGIN, COMMIT and the like, which have nothing to do: no statement writes rows, so every transaction is
    an empty one."""


@dataclass(frozen=True)
class SetVariables:
    """SET of variables.

    Attributes:
        assignments: the text after SET.
    """

    assignments: str


@dataclass(frozen=True)
class UseDatabase:
    name: str


@dataclass(frozen=True)
class Kill:
    what: Literal["query", "connection"]
    connection_id: int


@dataclass(frozen=True)
class Define:
    """CREATE, ALTER, DROP or TRUNCATE of stored tables and their databases.

    The executor parses the text once the user's right is checked.

    Attributes:
        database: the database of tables that the text names without one; None: there is none.
    """

    text: str
    database: str | None


@dataclass(frozen=True)
class Query:
    """SELECT, WITH, EXPLAIN of these, and whatever the parser then refuses."""

    text: str


TextPrepared = PrepareStatement | ExecuteStatement | DeallocateStatement
ClassifiedStatement = (
    Nothing | TransactionWord | SetVariables | UseDatabase | Kill | Define | Show | Query | TextPrepared
)


def classify(text: str, database: str | None) -> ClassifiedStatement:
    """Return the kind of a text that `text.plain` has returned.

    Args:
        database: database of tables that a definition names without one.

    Raises QueryError for a SHOW that cannot be parsed, and for an empty text.
    """
    return _known(text, database) if len(text) <= TEXT_CHARACTERS_MAX else _kind(text, database)


def _kind(text: str, database: str | None) -> ClassifiedStatement:
    if not text.strip(" ;\n\t"):
        if not text.strip():
            raise SqlSyntaxError("bad SQL: the statement is empty")
        return Nothing()
    if (assigned := _SET.match(text)) is not None:
        return SetVariables(assigned[1])
    if (name := _database_of_use(text)) is not None:
        return UseDatabase(name)
    if (kill := kill_of(text)) is not None:
        return kill
    if _TRANSACTION.match(text) is not None:
        return TransactionWord()
    if (show := show_of(text)) is not None:
        return show
    if (prepared := text_prepared_of(text)) is not None:
        return prepared
    return Define(text, database) if is_definition(text) else Query(text)


_known = lru_cache(KINDS_CACHED_MAX)(_kind)


def is_diagnostic(text: str) -> bool:
    """Return True for a text that asks about the statement before, whose warnings then stay."""
    return _DIAGNOSTIC.match(text) is not None


def needs_admission(request: ClassifiedStatement) -> bool:
    """Return True for a statement that the engine computes, for as long as its caller lets it."""
    return (
        isinstance(request, Query | ExecuteStatement | PrepareStatement)
        or (isinstance(request, Show) and bool(request.condition))
        or (isinstance(request, SetVariables) and "@" in request.assignments)
    )


def _database_of_use(text: str) -> str | None:
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
