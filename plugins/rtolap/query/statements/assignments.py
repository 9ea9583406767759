"""SET: variables are honoured, or refused where statements would mean something else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError, TokenError
from sqlglot.tokenizer_core import TokenType

from rtolap.base.errors import QueryError, SqlSyntaxError, UnsupportedSql
from rtolap.query.sql.dialect import RtolapSql

Value = str | int
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
_ZONES_OF_UTC = frozenset(("SYSTEM", "UTC", "GMT", "ETC/UTC", "ETC/GMT", "+00:00", "-00:00", "+0:00"))
_TARGET: Final = re.compile(
    r"(?:(?P<scope>session|local|global|persist|persist_only)\s+|@@(?:(?P<at_scope>\w+)\s*\.\s*)?)?"
    r"`?(?P<name>@?\w+)`?\s*\Z",
    re.IGNORECASE,
)


def assigned(
    text: str, variables: Mapping[str, Value], defaults: Mapping[str, Value], users: Mapping[str, Value]
) -> tuple[dict[str, Value], dict[str, Value]]:
    """`variables` and user variables after SET `text`; the given ones are left as they are.

    Any list is taken, because clients send many; only sql_mode, time_zone, max_execution_time,
    rtolap_session_token and user variables have an effect. Raises QueryError for a value that is not kept
    here.
    """
    variables, users = dict(variables), dict(users)
    if re.match(r"\s*statement\b", text, re.IGNORECASE):
        raise UnsupportedSql("unsupported SET STATEMENT … FOR", action="SET the variable, then ask")
    for scope, name, expression in _read(text):
        if name.startswith("@"):
            kept = _user_value(expression, variables, users)
            users.pop(name, None)
            if kept is not None:
                users[name] = kept
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


def _user_value(expression: str, variables: Mapping[str, Value], users: Mapping[str, Value]) -> Value | None:
    """None for what is not computed here: it is refused where it is used."""
    try:
        return _value(_parsed(expression), variables, users)
    except QueryError:
        return None


def _value(node: exp.Expr, variables: Mapping[str, Value], users: Mapping[str, Value]) -> Value:
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
            if name in users:
                return users[name]
            raise UnsupportedSql(f"unsupported value of SET: {name} holds nothing that was kept")
        case exp.Concat():
            return "".join(map(text, node.expressions))
        case exp.Replace():
            return text(node.this).replace(text(node.expression), text(node.args["replacement"]))
        case exp.Coalesce():
            for part in (node.this, *node.expressions):
                if (value := _user_value(part.sql(dialect=RtolapSql), variables, users)) is not None:
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
    if str(value).upper() not in _ZONES_OF_UTC:
        raise UnsupportedSql(
            f"unsupported time_zone {str(value)[:100]!r}",
            expected="'+00:00', 'UTC' or 'SYSTEM': NOW() and its like are in UTC",
            action="convert with CONVERT_TZ(…, 'UTC', zone) where local time is wanted",
        )
    return value


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
