"""SET: variables are honoured, or refused where statements would mean something else."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError, TokenError
from sqlglot.tokenizer_core import TokenType

from rtolap.base.errors import QueryError, SqlSyntaxError, UnknownZone, UnsupportedSql
from rtolap.query.durations import durations_us, is_duration, time_text
from rtolap.query.outcome import Outcome
from rtolap.query.sql.dialect import RtolapSql
from rtolap.query.sql.rules.dates.zones import is_zone, offset_minutes

Value = str | int  # of a variable of the system
UserValue = str | int | float | Decimal | bytes | None
Evaluate = Callable[[str, Mapping[str, UserValue]], UserValue]  # an expression and user variables → its value
USER_VARIABLES_MAX = 1_000
USER_BYTES_MAX = 1 << 20  # of all user variables of a session
TIMEOUT_MS_MAX = 86_400_000
SESSION_TOKEN = "rtolap_session_token"
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
_TARGET: Final = re.compile(
    r"(?:(?P<scope>session|local|global|persist|persist_only)\s+|@@(?:(?P<at_scope>\w+)\s*\.\s*)?)?"
    r"`?(?P<name>@?\w+)`?\s*\Z",
    re.IGNORECASE,
)


def user_value(outcome: Outcome) -> UserValue:
    """Return the value of an outcome of one column, as a user variable holds it: moments are texts there."""
    table = outcome.table()
    if table.num_rows != 1 or table.num_columns != 1:
        raise QueryError("SET of a user variable", expected="one value", found=f"{table.num_rows} rows")
    column = table.column(0)
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
    """`Evaluate` where nothing is computed."""
    raise UnsupportedSql(f"unsupported value of SET: {expression[:100]}")


def assigned(
    text: str,
    variables: Mapping[str, Value],
    defaults: Mapping[str, Value],
    users: Mapping[str, UserValue],
    evaluate: Evaluate,
) -> tuple[dict[str, Value], dict[str, UserValue]]:
    """`variables` and user variables after SET `text`; the given ones are left as they are.

    `evaluate`: computes what is more than a constant, a variable, or a text made of these.

    Any list is taken, because clients send many; only sql_mode, time_zone, max_execution_time,
    rtolap_session_token and user variables have an effect. Raises QueryError for a value that is not kept
    here.
    """
    variables, users = dict(variables), dict(users)
    if re.match(r"\s*statement\b", text, re.IGNORECASE):
        raise UnsupportedSql("unsupported SET STATEMENT … FOR", action="SET the variable, then ask")
    for scope, name, expression in _read(text):
        if name.startswith("@"):
            users[name] = _user_value(expression, variables, users, evaluate)
            _check_room(users)
        elif name in _CHECKED:
            if scope in ("global", "persist", "persist_only"):
                raise UnsupportedSql(
                    f"unsupported SET {scope.upper()} {name}", action=f"set it of the session: SET {name} = …"
                )
            is_default = expression.upper() == "DEFAULT"
            value = defaults[name] if is_default else _value(_parsed(expression), variables, users)
            variables[name] = _CHECKED[name](value)
    return variables, users


def _read(text: str) -> Iterator[tuple[str, str, str]]:
    """(scope, name, expression) of each assignment of a list; what is none of these is passed over."""
    try:
        tokens = RtolapSql().tokenize(text)
    except TokenError as error:
        raise SqlSyntaxError("bad SQL: a quote or a comment is not closed") from error
    ends = [(token.token_type, token.start, token.end + 1) for token in tokens]
    depth, start, middle = 0, 0, None
    for kind, at, behind in [*ends, (None, len(text), len(text))]:
        depth += (kind is TokenType.L_PAREN) - (kind is TokenType.R_PAREN)
        if kind is not None and depth > 0:
            continue
        if kind in (TokenType.EQ, TokenType.COLON_EQ) and middle is None:
            middle = (at, behind)
        elif kind in (None, TokenType.COMMA, TokenType.SEMICOLON):
            target = None if middle is None else _TARGET.match(text[start : middle[0]].strip())
            if middle is not None and target is not None:
                scope = (target["scope"] or target["at_scope"] or "session").lower()
                yield scope, target["name"].lower(), text[middle[1] : at].strip()
            start, middle = behind, None


def _parsed(expression: str) -> exp.Expr:
    try:
        return sqlglot.parse_one(expression, dialect=RtolapSql)
    except (SqlglotError, RecursionError) as error:
        raise SqlSyntaxError(f"bad SQL: SET … = {expression[:100]}") from error


def _user_value(
    expression: str,
    variables: Mapping[str, Value],
    users: Mapping[str, UserValue],
    evaluate: Evaluate,
) -> UserValue:
    node = _parsed(expression)
    if isinstance(node, exp.Parameter):
        return users.get(f"@{node.name}".lower())
    if isinstance(node, exp.Literal) and (node.is_string or str(node.this).isdecimal()):
        return _value(node, variables, users)
    if isinstance(node, exp.SessionParameter):
        return variables.get(str(node.name).lower())  # NULL, where a client saves one that is not here
    if isinstance(node, exp.Concat | exp.Replace | exp.Coalesce):  # which clients write, in every session
        known = _known_value(node, variables, users)
        if known is not None:
            return known
    return evaluate(expression, users)


def _check_room(users: Mapping[str, UserValue]) -> None:
    size = sum(len(name) + sys.getsizeof(value) for name, value in users.items())
    if len(users) > USER_VARIABLES_MAX or size > USER_BYTES_MAX:
        raise QueryError(
            "too much in user variables",
            expected=f"at most {USER_VARIABLES_MAX} variables and {USER_BYTES_MAX} bytes in a session",
            found=f"{len(users)} variables, {size} bytes",
        )


def _known_value(
    node: exp.Expr, variables: Mapping[str, Value], users: Mapping[str, UserValue]
) -> Value | None:
    try:
        return _value(node, variables, users)
    except QueryError:
        return None


def _value(node: exp.Expr, variables: Mapping[str, Value], users: Mapping[str, UserValue]) -> Value:
    """Return the value of what clients write: constants, words, variables, and texts made of these."""

    def text(part: exp.Expr) -> str:
        return str(_value(part, variables, users))

    match node:
        case exp.Literal():
            return str(node.this) if node.is_string else _number(str(node.this))
        case exp.Column() if not node.table:
            return str(node.name)
        case exp.SessionParameter() if str(node.name).lower() in variables:
            return variables[str(node.name).lower()]
        case exp.Parameter():
            name = f"@{node.name}".lower()
            held = users.get(name)
            if isinstance(held, str | int):
                return held
            raise UnsupportedSql(f"unsupported value of SET: {name} holds nothing that was kept")
        case exp.Concat():
            return "".join(map(text, node.expressions))
        case exp.Replace():
            return text(node.this).replace(text(node.expression), text(node.args["replacement"]))
        case exp.Coalesce():
            for part in (node.this, *node.expressions):
                if (value := _known_value(part, variables, users)) is not None:
                    return value
        case exp.Subquery() | exp.Paren():
            return _value(node.this, variables, users)
        case exp.Select() if len(node.expressions) == 1 and node.args.get("from_") is None:
            return _value(node.expressions[0], variables, users)
    raise UnsupportedSql(
        f"unsupported value of SET: {node.sql(dialect=RtolapSql)[:100]}",
        expected="a constant, a variable, or CONCAT and REPLACE of these",
    )


def _number(digits: str) -> Value:
    return int(digits) if digits.isdecimal() else digits


def _checked_modes(value: Value) -> Value:
    """The modes that hold from now on: `||` concatenates always."""
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


def _checked_zone(value: Value) -> Value:
    zone = str(value)
    if offset_minutes(zone) is not None or is_zone(zone):
        return zone
    raise UnknownZone(
        f"unknown time zone {zone[:100]!r}",
        expected="an offset from '-13:59' to '+14:00', 'SYSTEM', or a name such as 'Europe/Berlin'",
    )


def _checked_timeout(value: Value) -> Value:
    timeout = _number(str(value))
    if not isinstance(timeout, int) or timeout > TIMEOUT_MS_MAX:
        raise QueryError(
            "max_execution_time", expected=f"0..{TIMEOUT_MS_MAX} milliseconds", found=repr(str(value))
        )
    return timeout


_CHECKED: Final[Mapping[str, Callable[[Value], Value]]] = {
    "sql_mode": _checked_modes,
    "time_zone": _checked_zone,
    "max_execution_time": _checked_timeout,
    SESSION_TOKEN: str,  # by the session, which knows whose it is
}
