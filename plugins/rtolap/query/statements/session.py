"""Session state, and `@@variables` and functions of the session as constants."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from sqlglot import exp

from rtolap.base.errors import UnknownDatabase, UnknownVariable, UnsupportedSql
from rtolap.query.approval.bounds import STATEMENT_BYTES_MAX
from rtolap.query.catalogue import DATABASE, INFORMATION_SCHEMA
from rtolap.query.session_token import SessionPositions, SessionTokens
from rtolap.query.sql.dialect import label_of
from rtolap.query.sql.parser import Statement
from rtolap.query.sql.rules.dates.zones import in_session_zone, offset_minutes
from rtolap.query.statement_service import TIMEOUT_MS_DEFAULT
from rtolap.query.statements.assignments import (
    ANSI_QUOTES,
    SESSION_TOKEN,
    TIMEOUT_MS_MAX,
    Evaluate,
    UserValue,
    Value,
    assigned,
    refuse,
)

SERVER_VERSION = "8.0.33-rtolap"  # clients decide by it which grammar and catalogue they use

VARIABLES: dict[str, Value] = {
    "auto_increment_increment": 1,
    "autocommit": 1,
    "character_set_client": "utf8mb4",
    "character_set_connection": "utf8mb4",
    "character_set_database": "utf8mb4",
    "character_set_results": "utf8mb4",
    "character_set_server": "utf8mb4",
    "collation_connection": "utf8mb4_bin",
    "collation_database": "utf8mb4_bin",
    "collation_server": "utf8mb4_bin",
    "default_storage_engine": "rtolap",
    "have_ssl": "DISABLED",
    "init_connect": "",
    "interactive_timeout": 28800,
    "license": "Apache-2.0",
    "lower_case_table_names": 0,
    "max_allowed_packet": STATEMENT_BYTES_MAX,  # of a statement; parameters may be larger, see connection
    "max_execution_time": TIMEOUT_MS_DEFAULT,
    "net_buffer_length": 16384,
    "net_write_timeout": 60,
    "performance_schema": 0,
    "port": 0,
    "query_cache_size": 0,
    "query_cache_type": "OFF",
    "require_secure_transport": "OFF",
    SESSION_TOKEN: "",
    "sql_mode": "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,PIPES_AS_CONCAT",
    "sql_select_limit": 2**64 - 1,
    "system_time_zone": "UTC",
    "time_zone": "+00:00",
    "transaction_isolation": "REPEATABLE-READ",
    "transaction_read_only": 0,
    "tx_isolation": "REPEATABLE-READ",
    "tx_read_only": 0,
    "version": SERVER_VERSION,
    "version_comment": "rtolap",
    "version_compile_machine": "any",
    "version_compile_os": "any",
    "wait_timeout": 28800,
}


@dataclass
class Session:
    """The settings of one connection: `variables` are VARIABLES as it sees them, `users` its `@name`.

    `is_kept`: another statement follows in it; a request over HTTP has one of its own. `has_token`: its
    caller has the cluster's token, and no name. `facts`: variables that the server states and no session
    changes. `tls_cipher`: empty without TLS. `databases`: those that tables are in now. `tokens`: as
    @@rtolap_session_token they carry `positions`, which is what the session has been answered.
    """

    connection_id: int
    user: str
    host: str
    database: str | None = None
    tls_cipher: str = ""
    is_kept: bool = True
    has_token: bool = False
    facts: Mapping[str, str | int] = field(default_factory=dict)
    databases: Callable[[], Sequence[str]] = lambda: (DATABASE,)
    tokens: SessionTokens = field(default_factory=lambda: SessionTokens(secrets.token_hex()))
    variables: dict[str, Value] = field(init=False)
    users: dict[str, UserValue] = field(init=False)
    prepared: dict[str, str] = field(init=False)
    positions: SessionPositions = field(init=False)
    running: str | None = None
    warnings: list[tuple[str, int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """As it was after the login."""
        self.variables = {**VARIABLES, **self.facts}
        self.users = {}
        self.prepared = {}
        self.positions = SessionPositions()
        self.warnings = []

    def variable(self, name: str) -> str | int | None:
        """The value of `@@name`; None if there is no such variable."""
        match name:
            case "warning_count":
                return len(self.warnings)
            case "error_count":
                return sum(level == "Error" for level, _, _ in self.warnings)
        if name == SESSION_TOKEN:
            return self.tokens.write(self.positions)
        return self.variables.get(name)

    @property
    def timeout_ms(self) -> int:
        return int(self.variables["max_execution_time"]) or TIMEOUT_MS_MAX

    @property
    def has_ansi_quotes(self) -> bool:
        """Double quotes make names."""
        return ANSI_QUOTES in str(self.variables["sql_mode"]).split(",")

    def use(self, database: str) -> None:
        name = database.strip().strip("`").lower()
        if name not in (DATABASE, INFORMATION_SCHEMA) and name not in self.databases():
            known = ", ".join(self.databases())
            raise UnknownDatabase(f"unknown database {database!r}", expected=f"one of {known}")
        self.database = name

    @property
    def zone(self) -> str | None:
        """The time zone of the session; None for UTC."""
        zone = str(self.variables["time_zone"])
        return None if offset_minutes(zone) == 0 else zone

    def set(self, assignments: str, evaluate: Evaluate = refuse) -> None:
        """SET …, all of it or, raising QueryError for what is not kept here, nothing."""
        variables, users = assigned(assignments, self.variables, VARIABLES, self.users, evaluate)
        token = str(variables[SESSION_TOKEN])
        if token != self.variables[SESSION_TOKEN]:
            self.positions.merge(self.tokens.read(token))  # what was answered here still counts
        self.variables, self.users = variables, users


def substitute(
    statement: Statement, session: Session, users: Mapping[str, UserValue] | None = None
) -> Statement:
    """Put the session's values in the place of `@@variables`, `@name`, DATABASE(), USER() and the like.

    `users`: user variables that are not the session's yet. The same statement where there is nothing of it:
    what it was rewritten to is found by its identity.
    """
    users = session.users if users is None else users
    zone = session.zone if any(isinstance(node, exp.Func) for node in statement.functions) else None
    if zone is None and all(_value(node, session, users) is None for node in statement.functions):
        return statement
    tree = statement.tree.copy()
    for select in tree.find_all(exp.Select):
        select.set("expressions", [_labelled(projection) for projection in select.expressions])
    for node in list(tree.find_all(exp.Expr)):
        value = _value(node, session, users)
        if value is not None:
            node.replace(value)
    if zone is not None:
        in_session_zone(tree, zone)
    return replace(statement, tree=tree)


def _labelled(projection: exp.Expr) -> exp.Expr:
    if isinstance(projection, exp.Alias) or not projection.find(exp.SessionParameter, exp.Func):
        return projection
    return exp.alias_(projection, label_of(projection), quoted=True)


def _value(node: exp.Expr, session: Session, users: Mapping[str, UserValue]) -> exp.Expr | None:
    if isinstance(node, exp.SessionParameter):
        name = str(node.name).lower()
        if name.startswith("@"):
            if not session.is_kept:
                raise UnsupportedSql(
                    "user variables (@name) are not supported: no statement follows in this session",
                    action="bind a parameter instead",
                )
            return _literal(users.get(name))
        value = session.variable(name)
        if value is None:
            raise UnknownVariable(f"unknown variable @@{name}", action="SHOW VARIABLES lists those there are")
        return _literal(value)
    if not isinstance(node, exp.Func):
        return None
    name = str(node.this if isinstance(node, exp.Anonymous) else node.key).lower().replace("_", "")
    match name:
        case "database" | "schema" | "currentschema" | "currentdatabase":
            return _literal(session.database)
        case "user" | "currentuser" | "sessionuser" | "systemuser":
            return _literal(f"{session.user}@{session.host}")
        case "version" | "currentversion":
            return _literal(SERVER_VERSION)
        case "connectionid":
            return _literal(session.connection_id)
        case "lastinsertid" | "foundrows" | "rowcount":
            return _literal(0)
    return None


def _literal(value: UserValue) -> exp.Expr:
    match value:
        case None:
            return exp.null()
        case str():
            return exp.Literal.string(value)
        case bytes():
            return exp.HexString(this=value.hex())
        case float():
            number = f"{abs(value)!r}"
            literal: exp.Expr = exp.Literal.number(number if "e" in number else f"{number}e0")
        case _:
            literal = exp.Literal.number(f"{abs(value):f}" if isinstance(value, Decimal) else str(abs(value)))
    return exp.paren(exp.Neg(this=literal)) if value < 0 else literal
