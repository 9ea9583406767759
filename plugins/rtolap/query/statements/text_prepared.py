"""PREPARE, EXECUTE and DEALLOCATE as statements: a session's texts by their names.

Such a text is parsed as any other when it is executed. Its values are user variables, bound by the engine.
"""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from dataclasses import dataclass

from sqlglot.errors import TokenError

from rtolap.base.errors import QueryError, SqlSyntaxError, UnknownPrepared
from rtolap.query.sql.dialect import RtolapSql

PREPARED_MAX = 100
PREPARED_BYTES_MAX = 1 << 20  # of all texts of a session

_PREPARE = re.compile(r"prepare\s++`?(\w+)`?\s++from\s*+(\S.*)", re.I | re.DOTALL)
_EXECUTE = re.compile(r"execute\s++`?(\w+)`?(?:\s++using\s++(.*))?\Z", re.I | re.DOTALL)
_DEALLOCATE = re.compile(r"(?:deallocate|drop)\s++prepare\s++`?(\w+)`?\Z", re.I)
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.|'')*+'|"(?:[^"\\]|\\.|"")*+\"""", re.DOTALL)
_VARIABLE = re.compile(r"@`?(\w+)`?\Z")


@dataclass(frozen=True)
class PrepareStatement:
    """PREPARE of a text.

    Attributes:
        variable: the user variable that contains the text; None: the statement contains the text.
    """

    name: str
    text: str = ""
    variable: str | None = None


@dataclass(frozen=True)
class ExecuteStatement:
    """EXECUTE of a prepared text.

    Attributes:
        variables: user variables with the values of the text's `?`, in order.
    """

    name: str
    variables: tuple[str, ...] = ()


@dataclass(frozen=True)
class DeallocateStatement:
    name: str


def text_prepared_of(text: str) -> PrepareStatement | ExecuteStatement | DeallocateStatement | None:
    """Parse PREPARE, EXECUTE and DEALLOCATE; return None for another statement. Raises SqlSyntaxError."""
    body = text.strip().removesuffix(";").rstrip()
    if (match := _PREPARE.match(body)) is not None:
        variable = _VARIABLE.match(match[2])
        if variable is not None:
            return PrepareStatement(match[1].lower(), variable=f"@{variable[1]}".lower())
        return PrepareStatement(match[1].lower(), _string(match[2]))
    if (match := _EXECUTE.match(body)) is not None:
        names = [_VARIABLE.match(each.strip()) for each in (match[2] or "").split(",") if match[2]]
        if None in names:
            raise SqlSyntaxError("bad SQL: EXECUTE … USING", expected="user variables such as @a, @b")
        return ExecuteStatement(match[1].lower(), tuple(f"@{each[1]}".lower() for each in names if each))
    if (match := _DEALLOCATE.match(body)) is not None:
        return DeallocateStatement(match[1].lower())
    return None


def keep(texts: MutableMapping[str, str], name: str, text: str) -> None:
    texts.pop(name, None)
    size = sum(map(len, texts.values())) + len(text)
    if len(texts) >= PREPARED_MAX or size > PREPARED_BYTES_MAX:
        raise QueryError(
            "too much in prepared statements",
            expected=f"at most {PREPARED_MAX} statements and {PREPARED_BYTES_MAX} characters in a session",
            action="DEALLOCATE PREPARE those that are not needed",
        )
    texts[name] = text


def find(texts: MutableMapping[str, str], name: str) -> str:
    try:
        return texts[name]
    except KeyError:
        raise UnknownPrepared(f"unknown prepared statement {name!r}", action="PREPARE it first") from None


def _string(written: str) -> str:
    if _QUOTED.fullmatch(written) is None:  # so that there is one token, however long the text is
        raise SqlSyntaxError("bad SQL: PREPARE … FROM", expected="a text in quotes, or a user variable")
    try:
        (token,) = RtolapSql().tokenize(written)
    except (TokenError, ValueError) as error:
        raise SqlSyntaxError("bad SQL: a quote is not closed") from error
    return str(token.text)
