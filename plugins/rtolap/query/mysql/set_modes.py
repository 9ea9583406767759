"""SET sql_mode and SET time_zone: honoured, or refused where statements would mean something else."""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping

from rtolap.base.errors import QueryError

# Modes by which a query would be read or answered otherwise than it is here.
_REFUSED_MODES = (
    *("ANSI_QUOTES", "ANSI", "NO_BACKSLASH_ESCAPES", "HIGH_NOT_PRECEDENCE", "PAD_CHAR_TO_FULL_LENGTH"),
    *("DB2", "MAXDB", "MSSQL", "ORACLE", "POSTGRESQL"),
)
_ZONES_OF_UTC = frozenset(
    ("SYSTEM", "UTC", "GMT", "ETC/UTC", "ETC/GMT", "+00:00", "-00:00", "+0:00", "DEFAULT")
)
_ASSIGNED = re.compile(r"(?<![\w'\"`])`?(sql_mode|time_zone)`?\s*:?=\s*(.*)", re.IGNORECASE | re.DOTALL)
_VALUE = re.compile(r"""(?:'([^']*)'|"([^"]*)"|([-+@\w.:/]+))\s*(?=[,;]|\Z)""")
_WORD = re.compile(r"[A-Z_0-9]+")


def set_modes(
    assignments: str, variables: MutableMapping[str, str | int], defaults: Mapping[str, str | int]
) -> None:
    """`assignments`: what stands behind SET. Raises QueryError for a mode or a zone that is not kept here."""
    rest = assignments
    while (match := _ASSIGNED.search(rest)) is not None:
        name, rest = match[1].lower(), match[2]
        value = _VALUE.match(rest)
        if value is None:  # an expression, as CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')
            _check_expression(name, rest)
            continue
        rest = rest[value.end() :]
        text = next(group for group in value.groups() if group is not None)
        if text.startswith("@"):
            continue  # what a client has put aside before
        if name == "sql_mode":
            _check_modes(text.upper().split(","))
        elif text.upper() not in _ZONES_OF_UTC:
            raise _unknown_zone(text)
        variables[name] = defaults[name] if text.upper() == "DEFAULT" else text


def _check_modes(modes: list[str]) -> None:
    for mode in modes:
        if mode.strip() in _REFUSED_MODES:
            raise QueryError(
                f"unsupported sql_mode {mode.strip()}",
                expected="double quotes that make strings, and a backslash that escapes",
                action="quote names with backticks",
            )


def _check_expression(name: str, expression: str) -> None:
    if name == "time_zone":
        raise _unknown_zone(expression)
    if not re.match(r"\(?\s*(?:select\s+)?replace\s*\(", expression, re.IGNORECASE):  # which takes modes away
        _check_modes(_WORD.findall(expression.upper()))


def _unknown_zone(zone: str) -> QueryError:
    return QueryError(
        f"unsupported time_zone {zone.strip()[:100]!r}",
        expected="'+00:00', 'UTC' or 'SYSTEM': NOW() and its like are in UTC",
        action="convert with CONVERT_TZ(…, 'UTC', zone) where local time is wanted",
    )
