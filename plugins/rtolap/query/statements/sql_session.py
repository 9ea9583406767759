"""Session state, and its values for the `@@variables` and functions of statements."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rtolap.base.errors import UnknownDatabase, UnknownVariable, UnsupportedSql
from rtolap.query.approval.bounds import STATEMENT_BYTES_MAX
from rtolap.query.catalogue import DATABASE, INFORMATION_SCHEMA
from rtolap.query.engine_choice import EngineWish
from rtolap.query.memory_budget import SESSION, Account, MemoryBudget
from rtolap.query.session_token import SessionPositions, SessionTokens
from rtolap.query.sql.rules.zones import offset_minutes
from rtolap.query.sql.statement import SqlStatement, UserValue
from rtolap.query.statement_service import TIMEOUT_MS_DEFAULT
from rtolap.query.statements import text_prepared
from rtolap.query.statements.assignments import (
    ANSI_QUOTES,
    ENGINE,
    SESSION_TOKEN,
    TIMEOUT_MS_MAX,
    Evaluate,
    VariableValue,
    assigned,
    engine_wish,
    refuse,
    users_bytes,
)

UTC = "+00:00"  # the time zone of a session that has set none
SERVER_VERSION = "8.0.33-rtolap"  # clients decide by it which grammar and catalogue they use

VARIABLES: dict[str, VariableValue] = {
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
    ENGINE: "auto",
    SESSION_TOKEN: "",
    "sql_mode": "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,PIPES_AS_CONCAT",
    "sql_select_limit": 2**64 - 1,
    "system_time_zone": "UTC",
    "time_zone": UTC,
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


def no_progress() -> str:
    """Return the progress of a statement that waits for nobody."""
    return ""


@dataclass
class SqlSession:
    """The settings of one client's connection.

    Attributes:
        database: the database of tables that a statement names without one; None: none was chosen.
        tls_cipher: the cipher of the connection; empty without TLS.
        is_persistent: True if other statements may follow in the session; an HTTP request has one of its own.
        has_token: True if the client has the cluster's token, and no name.
        facts: variables that the server states and no session changes.
        databases: returns the databases that exist, given one that should be among them.
        account: the memory of the session.
        tokens: writes and reads @@rtolap_session_token, which carries `positions`.
        variables: VARIABLES with the values of this session.
        users: user variables: `@name` → value.
        prepared: name → text of statements prepared with PREPARE.
        positions: what the session has been answered.
        running: the text of the running statement; None if there is none.
        progress: returns what the running statement waits for elsewhere, in words.
        warnings: level, number and text of each warning of the last statement.
    """

    connection_id: int
    user: str
    host: str
    database: str | None = None
    tls_cipher: str = ""
    is_persistent: bool = True
    has_token: bool = False
    facts: Mapping[str, str | int] = field(default_factory=dict)
    databases: Callable[[str], Sequence[str]] = lambda wanted: (DATABASE,)
    account: Account = field(default_factory=lambda: MemoryBudget().account(""))
    tokens: SessionTokens = field(default_factory=lambda: SessionTokens(secrets.token_hex()))
    variables: dict[str, VariableValue] = field(init=False)
    users: dict[str, UserValue] = field(init=False)
    prepared: dict[str, str] = field(init=False)
    positions: SessionPositions = field(init=False)
    running: str | None = None
    progress: Callable[[], str] = no_progress
    warnings: list[tuple[str, int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Restore the state after the login."""
        self.variables = {**VARIABLES, **self.facts}
        self.users = {}
        self.prepared = {}
        self.account.reserve(SESSION, 0)
        self.positions = SessionPositions()
        self.warnings = []

    def variable(self, name: str) -> str | int | None:
        """Return the value of `@@name`; None if there is no such variable."""
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
    def engine(self) -> EngineWish:
        """The engine that is to read history."""
        return engine_wish(str(self.variables[ENGINE]))

    @property
    def has_ansi_quotes(self) -> bool:
        """True if double quotes make names."""
        return ANSI_QUOTES in str(self.variables["sql_mode"]).split(",")

    def use(self, database: str) -> None:
        name = database.strip().strip("`").lower()
        if name not in (DATABASE, INFORMATION_SCHEMA):
            databases = self.databases(name)
            if name not in databases:
                known = ", ".join(databases)
                raise UnknownDatabase(f"unknown database {database[:100]!r}", expected=f"one of {known}")
        self.database = name

    @property
    def zone(self) -> str | None:
        """The time zone of the session; None for UTC."""
        zone = str(self.variables["time_zone"])
        return None if zone == UTC or offset_minutes(zone) == 0 else zone

    def set(self, assignments: str, evaluate: Evaluate = refuse) -> None:
        """Apply SET completely. Raises QueryError for an unsupported value, and then nothing has changed."""
        variables, users = assigned(assignments, self.variables, VARIABLES, self.users, evaluate)
        self._reserve(users, self.prepared)
        token = str(variables[SESSION_TOKEN])
        if token != self.variables[SESSION_TOKEN]:
            self.positions.merge(self.tokens.read(token))  # what was answered here still counts
        self.variables, self.users = variables, users

    def keep_prepared(self, name: str, text: str) -> None:
        """Store a text by PREPARE. Raises QueryError where there is no room for it."""
        prepared = dict(self.prepared)
        text_prepared.keep(prepared, name, text)
        self._reserve(self.users, prepared)
        self.prepared = prepared

    def forget_prepared(self, name: str) -> None:
        """Drop a text by DEALLOCATE. Raises UnknownPrepared."""
        text_prepared.find(self.prepared, name)
        del self.prepared[name]
        self._reserve(self.users, self.prepared)

    def _reserve(self, users: Mapping[str, UserValue], prepared: Mapping[str, str]) -> None:
        self.account.reserve(SESSION, users_bytes(users) + users_bytes(prepared))


def completed(
    statement: SqlStatement, session: SqlSession, users: Mapping[str, UserValue] | None = None
) -> SqlStatement:
    """Return the statement with the values that it takes from its session.

    Args:
        users: the user variables; None: the session's.
    """
    zone = session.zone if statement.has_functions else None
    if zone is None and not statement.session_names:
        return statement
    users = session.users if users is None else users
    given = {name: _value(name, session, users) for name in statement.session_names}
    return replace(statement, given=given, zone=zone)


def _value(name: str, session: SqlSession, users: Mapping[str, UserValue]) -> UserValue:
    """Return the session's value for one of `SqlStatement.session_names`."""
    if name.startswith("@@"):
        value = session.variable(name[2:])
        if value is None:
            raise UnknownVariable(f"unknown variable {name}", action="SHOW VARIABLES lists those there are")
        return value
    if name.startswith("@"):
        if not session.is_persistent:
            raise UnsupportedSql(
                "user variables (@name) are not supported: no statement follows in this session",
                action="bind a parameter instead",
            )
        return users.get(name)
    match name:
        case "database":
            return session.database
        case "user":
            return f"{session.user}@{session.host}"
        case "version":
            return SERVER_VERSION
        case "connectionid":
            return session.connection_id
    return 0
