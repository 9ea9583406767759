"""SET: variables are honoured, or refused where statements would mean something else."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Final

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from rtolap.base.errors import QueryError, SqlSyntaxError, UnknownZone, UnsupportedSql
from rtolap.query.durations import durations_us, is_duration, time_text
from rtolap.query.engine_choice import WISHES, EngineWish
from rtolap.query.sql.dialect import RtolapSql
from rtolap.query.sql.parser import PARSERS_OWN
from rtolap.query.sql.rules.zones import is_zone, offset_minutes
from rtolap.query.sql.statement import UserValue
from rtolap.query.statement_outcome import StatementOutcome

VariableValue = str | int  # of a variable of the system
Evaluate = Callable[[str, Mapping[str, UserValue]], UserValue]  # an expression and user variables → its value
USER_VARIABLES_MAX = 1_000
USER_BYTES_MAX = 1 << 20  # of all user variables of a session
TIMEOUT_MS_MAX = 86_400_000
SESSION_TOKEN = "rtolap_session_token"
ENGINE = "rtolap_engine"
ANSI_QUOTES = "ANSI_QUOTES"
PIPES_AS_CONCAT = "PIPES_AS_CONCAT"
# What MySQL's ANSI stands for, but for REAL_AS_FLOAT: a REAL is a double here.
_ANSI = (PIPES_AS_CONCAT, ANSI_QUOTES, "IGNORE_SPACE", "ONLY_FULL_GROUP_BY", "ANSI")
# Modes by which no query is read or answered otherwise than it is here.
_HARMLESS_MODES = frozenset(
    (
        *(PIPES_AS_CONCAT, ANSI_QUOTES, "IGNORE_SPACE", "ONLY_FULL_GROUP_BY", "ANSI", "TRADITIONAL"),
        *("STRICT_TRANS_TABLES", "STRICT_ALL_TABLES", "NO_ZERO_IN_DATE", "NO_ZERO_DATE"),
        *("ERROR_FOR_DIVISION_BY_ZERO", "NO_ENGINE_SUBSTITUTION", "NO_AUTO_CREATE_USER"),
        *("NO_AUTO_VALUE_ON_ZERO", "NO_DIR_IN_CREATE", "NO_UNSIGNED_SUBTRACTION", "ALLOW_INVALID_DATES"),
        *("NO_FIELD_OPTIONS", "NO_KEY_OPTIONS", "NO_TABLE_OPTIONS", "SIMULTANEOUS_ASSIGNMENT"),
    )
)
PARSED_CHARACTERS_MAX = 2_000  # of the values of one SET that are read here, not by the engine
# Quotes, comments and marks as the parser splits them; what is within quotes is no step for each character.
_PART: Final = re.compile(
    r"""'(?:[^'\\]|\\.|'')*+'|"(?:[^"\\]|\\.|"")*+"|`(?:[^`]|``)*+`|--[^\n]*+|\#[^\n]*+|/\*.*?\*/|/\*"""
    r"""|<=>|[<>!:]=|[=(),;'"`]|[^'"`\-#/<>!:=(),;]++|.""",
    re.DOTALL,
)
_TARGET: Final = re.compile(
    r"(?:(?P<scope>session|local|global|persist|persist_only)\s+|@@(?:(?P<at_scope>\w+)\s*\.\s*)?)?"
    r"`?(?P<name>@?\w+)`?\s*\Z",
    re.IGNORECASE,
)


def user_value(outcome: StatementOutcome) -> UserValue:
    """Return the value of an outcome of one column, as a user variable holds it: moments are texts there."""
    batches, rows = [], 0
    for batch in outcome.batches:
        batches.append(batch)
        rows += batch.num_rows
        if rows > 1:
            break
    if rows != 1 or len(outcome.schema) != 1:
        raise QueryError(
            "SET of a user variable",
            expected="one value",
            found=f"{'more than one row' if rows > 1 else f'{rows} rows'} of {len(outcome.schema)} columns",
        )
    column = pa.Table.from_batches(batches, outcome.schema).column(0)
    if is_duration(column.type):
        (duration,) = durations_us(column)
        return None if duration is None else time_text(duration)
    (value,) = column.to_pylist()
    if isinstance(value, bool):
        return int(value)
    if value is None or isinstance(value, str | int | float | Decimal | bytes):
        return value
    return value.isoformat(" ") if isinstance(value, datetime) else str(value)


def refuse(expression: str, users: Mapping[str, UserValue]) -> UserValue:
    """Refuse user variables: an `Evaluate` where nothing is computed."""
    raise UnsupportedSql(f"unsupported value of SET: {expression[:100]}")


def assigned(
    text: str,
    variables: Mapping[str, VariableValue],
    defaults: Mapping[str, VariableValue],
    users: Mapping[str, UserValue],
    evaluate: Evaluate,
) -> tuple[dict[str, VariableValue], dict[str, UserValue]]:
    """Return `variables` and user variables after SET `text`. The arguments do not change.

    Any variable is accepted, because clients send many. Only sql_mode, time_zone, max_execution_time,
    rtolap_engine, rtolap_session_token and user variables have an effect.

    Args:
        evaluate: computes what is more than a constant, a variable, or a text made of these.

    Raises QueryError for a value that is not supported.
    """
    variables, users = dict(variables), dict(users)
    if re.match(r"\s*statement\b", text, re.IGNORECASE):
        raise UnsupportedSql("unsupported SET STATEMENT … FOR", action="SET the variable, then ask")
    reading = _Reading(variables, users)
    size = users_bytes(users)
    for scope, name, expression in _read(text):
        if name.startswith("@"):
            value = _user_value(expression, reading, evaluate)
            size += value_bytes(name, value) - (value_bytes(name, users[name]) if name in users else 0)
            users[name] = value
            _check_room(len(users), size)
        elif name in _CHECKED:
            if scope in ("global", "persist", "persist_only"):
                raise UnsupportedSql(
                    f"unsupported SET {scope.upper()} {name}", action=f"set it of the session: SET {name} = …"
                )
            is_default = expression.upper() == "DEFAULT"
            variables[name] = _CHECKED[name](defaults[name] if is_default else reading.value(expression))
    return variables, users


def users_bytes(users: Mapping[str, UserValue]) -> int:
    """Return what user variables take in memory."""
    return sum(value_bytes(name, value) for name, value in users.items())


def value_bytes(name: str, value: UserValue) -> int:
    return len(name) + sys.getsizeof(value)


def _read(text: str) -> Iterator[tuple[str, str, str]]:
    """Yield scope, name and expression of each assignment of a list; other items are passed over.

    The work is linear in the text, and has no step for each character.
    """
    depth, start, middle, at = 0, 0, None, 0
    while at <= len(text):
        part = _PART.match(text, at)
        word, behind = ("", at + 1) if part is None else (part[0], part.end())
        if word in ("'", '"', "`", "/*"):
            raise SqlSyntaxError("bad SQL: a quote or a comment is not closed")
        depth += (word == "(") - (word == ")")
        if depth <= 0 or not word:
            if word in ("=", ":=") and middle is None:
                middle = (at, behind)
            elif word in ("", ",", ";"):
                target = None if middle is None else _TARGET.match(text[start : middle[0]].strip())
                if middle is not None and target is not None:
                    scope = (target["scope"] or target["at_scope"] or "session").lower()
                    yield scope, target["name"].lower(), text[middle[1] : at].strip()
                start, middle = behind, None
        at = behind


class _Unknown(Exception):
    """The error that a value is not computed here."""


class _Reading:
    """The values that are read here: constants, variables, and texts made of these, as clients write them in
    every session. What is long, or more, is left to the engine.

    `variables` and `users` change while a list is assigned.
    """

    def __init__(self, variables: Mapping[str, VariableValue], users: Mapping[str, UserValue]) -> None:
        self._variables = variables
        self.users = users
        self._characters_left = PARSED_CHARACTERS_MAX

    def parsed(self, expression: str) -> exp.Expr | None:
        """Return None for an expression that is not read here. Raises SqlSyntaxError."""
        if len(expression) > self._characters_left:
            return None
        self._characters_left -= len(expression)
        try:
            return sqlglot.parse_one(expression, dialect=RtolapSql)
        except (SqlglotError, RecursionError, *PARSERS_OWN) as error:
            raise SqlSyntaxError(f"bad SQL: SET … = {expression[:100]}") from error

    def value(self, expression: str) -> VariableValue:
        """Return a value. Raises UnsupportedSql for an expression that is not computed here."""
        node = self.parsed(expression)
        known = None if node is None else self.known(node)
        if known is not None:
            return known
        if isinstance(node, exp.Parameter):
            name = f"@{node.name}".lower()[:100]
            raise UnsupportedSql(f"unsupported value of SET: {name} holds nothing that was kept")
        raise UnsupportedSql(
            f"unsupported value of SET: {expression[:100]}",
            expected="a constant, a variable, or CONCAT and REPLACE of these, in at most "
            f"{PARSED_CHARACTERS_MAX} characters of one SET",
        )

    def user(self, node: exp.Parameter) -> UserValue:
        return self.users.get(f"@{node.name}".lower())

    def variable(self, node: exp.SessionParameter) -> VariableValue | None:
        """Return a variable's value; NULL where a client saves a variable that does not exist here."""
        return self._variables.get(str(node.name).lower())

    def known(self, node: exp.Expr) -> VariableValue | None:
        try:
            return self._value(node)
        except _Unknown:
            return None

    def _value(self, node: exp.Expr) -> VariableValue:
        match node:
            case exp.Literal():
                return str(node.this) if node.is_string else _number(str(node.this))
            case exp.Column() if not node.table:
                return str(node.name)
            case exp.SessionParameter():
                variable = self.variable(node)
                if variable is not None:
                    return variable
            case exp.Parameter():
                value = self.user(node)
                if isinstance(value, str | int):
                    return value
            case exp.Concat():
                parts = [str(self._value(part)) for part in node.expressions]
                _check_text(sum(map(len, parts)))
                return "".join(parts)
            case exp.Replace():
                text, old, new = (
                    str(self._value(part)) for part in (node.this, node.expression, node.args["replacement"])
                )
                _check_text(len(text) + (text.count(old) * len(new) if old else 0))
                return text.replace(old, new) if old else text
            case exp.Coalesce():
                for part in (node.this, *node.expressions):
                    if (value := self.known(part)) is not None:
                        return value
            case exp.Subquery() | exp.Paren():
                return self._value(node.this)
            case exp.Select() if len(node.expressions) == 1 and node.args.get("from_") is None:
                return self._value(node.expressions[0])
        raise _Unknown


def _user_value(expression: str, reading: _Reading, evaluate: Evaluate) -> UserValue:
    node = reading.parsed(expression)
    known: UserValue = None
    match node:
        case exp.Parameter():
            return reading.user(node)
        case exp.SessionParameter():
            return reading.variable(node)
        case exp.Literal() if node.is_string or str(node.this).isdecimal():
            known = reading.known(node)
        case exp.Concat() | exp.Replace() | exp.Coalesce():
            known = reading.known(node)
    return evaluate(expression, reading.users) if known is None else known


def _check_text(length: int) -> None:
    """Raise QueryError for a text that no user variable may hold, before it is made."""
    if length > USER_BYTES_MAX:
        raise QueryError(
            "too much in user variables",
            expected=f"at most {USER_BYTES_MAX} bytes in a session",
            found=f"a text of {length} characters",
        )


def _check_room(count: int, size: int) -> None:
    if count > USER_VARIABLES_MAX or size > USER_BYTES_MAX:
        raise QueryError(
            "too much in user variables",
            expected=f"at most {USER_VARIABLES_MAX} variables and {USER_BYTES_MAX} bytes in a session",
            found=f"{count} variables, {size} bytes",
        )


def _number(digits: str) -> VariableValue:
    return int(digits) if digits.isdecimal() else digits


def _checked_modes(value: VariableValue) -> VariableValue:
    """Return the modes that hold from now on: `||` concatenates always."""
    modes: list[str] = []
    for mode in filter(None, (word.strip() for word in str(value).upper().split(","))):
        if mode not in _HARMLESS_MODES:
            raise UnsupportedSql(
                f"unsupported sql_mode {mode}",
                expected="a backslash that escapes, REAL as a double, and otherwise MySQL's defaults; or "
                "ANSI_QUOTES",
                action="leave it out of sql_mode",
            )
        modes += _ANSI if mode == "ANSI" else (mode,)
    return ",".join(dict.fromkeys((*modes, PIPES_AS_CONCAT)))


def _checked_zone(value: VariableValue) -> VariableValue:
    zone = str(value)
    if offset_minutes(zone) is not None or is_zone(zone):
        return zone
    raise UnknownZone(
        f"unknown time zone {zone[:100]!r}",
        expected="an offset from '-13:59' to '+14:00', 'SYSTEM', or a name such as 'Europe/Berlin'",
    )


def _checked_timeout(value: VariableValue) -> VariableValue:
    timeout = _number(str(value))
    if not isinstance(timeout, int) or timeout > TIMEOUT_MS_MAX:
        raise QueryError(
            "max_execution_time", expected=f"0..{TIMEOUT_MS_MAX} milliseconds", found=repr(str(value))
        )
    return timeout


def engine_wish(value: str) -> EngineWish:
    """Return the wish. Raises QueryError for what is no engine."""
    for wish in WISHES:
        if value.lower() == wish:
            return wish
    raise QueryError(
        "unknown engine of history", expected=f"one of {', '.join(WISHES)}", found=repr(value[:100])
    )


_CHECKED: Final[Mapping[str, Callable[[VariableValue], VariableValue]]] = {
    "sql_mode": _checked_modes,
    "time_zone": _checked_zone,
    "max_execution_time": _checked_timeout,
    ENGINE: lambda value: engine_wish(str(value)),
    SESSION_TOKEN: str,  # by the session, which knows whose it is
}
