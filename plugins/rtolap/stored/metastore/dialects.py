"""Differences between the two kinds of server: address, connecting, types, clock, and what their errors mean.

|                    | MySQL, MariaDB                        | SQLite                                   |
|--------------------|---------------------------------------|------------------------------------------|
| isolation          | READ COMMITTED, and locks in the fence | serialised: BEGIN IMMEDIATE for a write |
| names and labels   | utf8mb4_bin                           | BINARY, its default                      |
| rows of an UPDATE  | those found (FOUND_ROWS), not changed | those found                              |
| clock              | the server's                          | this process's, which is the server      |
"""

from __future__ import annotations

import sqlite3
from typing import Any, Protocol

import sqlalchemy as sa
from pymysql.constants import CLIENT, CR, ER
from sqlalchemy.pool import StaticPool

from rtolap.base.clock import Clock
from rtolap.base.errors import DefinitionError

CONNECT_TIMEOUT_S = 5
STATEMENT_TIMEOUT_S = 30
LOCK_TIMEOUT_S = 10  # below the statement's, so that a lock differs from a dead server
IDLE_TRANSACTION_S = 8  # below the wait for a lock, so that who waits for it gets it
_READ_ONLY = "rtolap_read_only"
_SESSION = (
    "SET SESSION sql_mode='STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION',"
    f" innodb_lock_wait_timeout={LOCK_TIMEOUT_S}, time_zone='+00:00'"
    # MariaDB's own: a process that stands still within a write holds its row locks until the server ends it
    f"/*M!100300 , idle_transaction_timeout={IDLE_TRANSACTION_S} */"
)
# The server is away, going or not up yet; the connection is of no more use.
_MYSQL_LOST = frozenset(
    {
        0,  # PyMySQL's own for a connection that it has closed
        CR.CR_CONNECTION_ERROR,
        CR.CR_CONN_HOST_ERROR,
        CR.CR_SERVER_GONE_ERROR,
        CR.CR_SERVER_LOST,
        ER.SERVER_SHUTDOWN,
        ER.CON_COUNT_ERROR,
        1927,  # ER_CONNECTION_KILLED, MariaDB
    }
)
# Somebody else was in the way; the same again may succeed. 1205 rolls back its statement only, so the whole
# transaction is always rolled back by us. 1020 is MariaDB's snapshot conflict.
_MYSQL_BUSY = frozenset({ER.LOCK_DEADLOCK, ER.LOCK_WAIT_TIMEOUT, ER.CHECKREAD})
_MYSQL_DENIED = frozenset({ER.ACCESS_DENIED_ERROR, ER.DBACCESS_DENIED_ERROR})


class Dialect(Protocol):
    """Dialect of a kind of server, as `database` and `upgrade` need it."""

    def create_engine(self, url: sa.URL) -> sa.Engine: ...

    def now_ms(self, connection: sa.Connection) -> int: ...

    def begin_read(self, connection: sa.Connection) -> None:
        """Say that what follows only reads."""
        ...

    def lock_for_upgrade(self, connection: sa.Connection, timeout_s: int) -> bool:
        """Return False when somebody else holds the lock for longer. It ends with the connection."""
        ...

    def unlock_after_upgrade(self, connection: sa.Connection) -> None: ...

    def is_lost(self, error: sa.exc.DBAPIError) -> bool: ...

    def is_busy(self, error: sa.exc.DBAPIError) -> bool: ...

    def is_denied(self, error: sa.exc.DBAPIError) -> bool: ...


class MySqlDialect:
    def create_engine(self, url: sa.URL) -> sa.Engine:
        return sa.create_engine(
            url,
            isolation_level="READ COMMITTED",
            hide_parameters=True,
            pool_size=8,
            max_overflow=24,
            pool_recycle=1800,
            connect_args={
                "charset": "utf8mb4",
                "client_flag": CLIENT.FOUND_ROWS,
                "connect_timeout": CONNECT_TIMEOUT_S,
                "read_timeout": STATEMENT_TIMEOUT_S,
                "write_timeout": STATEMENT_TIMEOUT_S,
                "init_command": _SESSION,
            },
        )

    def now_ms(self, connection: sa.Connection) -> int:
        return int(
            connection.exec_driver_sql("SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED)").scalar_one()
        )

    def begin_read(self, connection: sa.Connection) -> None:
        """Begin to read. READ COMMITTED holds no other transaction back."""

    def lock_for_upgrade(self, connection: sa.Connection, timeout_s: int) -> bool:
        lock = sa.text("SELECT GET_LOCK(CONCAT('rtolap:', LEFT(DATABASE(), 50)), :timeout_s)")
        return bool(connection.scalar(lock, {"timeout_s": timeout_s}) == 1)

    def unlock_after_upgrade(self, connection: sa.Connection) -> None:
        connection.exec_driver_sql("SELECT RELEASE_LOCK(CONCAT('rtolap:', LEFT(DATABASE(), 50)))")

    def is_lost(self, error: sa.exc.DBAPIError) -> bool:
        return error.connection_invalidated or _mysql_code(error) in _MYSQL_LOST

    def is_busy(self, error: sa.exc.DBAPIError) -> bool:
        return _mysql_code(error) in _MYSQL_BUSY

    def is_denied(self, error: sa.exc.DBAPIError) -> bool:
        return _mysql_code(error) in _MYSQL_DENIED


def _mysql_code(error: sa.exc.DBAPIError) -> int:
    arguments = error.orig.args if error.orig is not None else ()
    return arguments[0] if arguments and isinstance(arguments[0], int) else -1


class SqliteDialect:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def create_engine(self, url: sa.URL) -> sa.Engine:
        in_memory = url.database in (None, "", ":memory:")
        # One connection for all threads where the database lives in it; `Ledger` then lets in one at a time.
        pool: dict[str, Any] = (
            {"poolclass": StaticPool} if in_memory else {"pool_size": 8, "max_overflow": 24}
        )
        engine = sa.create_engine(
            url,
            hide_parameters=True,
            connect_args={"check_same_thread": False, "timeout": LOCK_TIMEOUT_S},
            **pool,
        )

        def connected(connection: sqlite3.Connection, record: object) -> None:
            connection.isolation_level = None  # we begin: the driver would wait until the first change
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA case_sensitive_like = ON")  # as utf8mb4_bin has it
            if not in_memory:
                connection.execute("PRAGMA journal_mode = WAL")

        def begun(connection: sa.Connection) -> None:
            read_only = connection.get_execution_options().get(_READ_ONLY, False)
            connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")

        sa.event.listen(engine, "connect", connected)
        sa.event.listen(engine, "begin", begun)
        return engine

    def now_ms(self, connection: sa.Connection) -> int:
        return self._clock.now_ms()

    def begin_read(self, connection: sa.Connection) -> None:
        connection.execution_options(**{_READ_ONLY: True})

    def lock_for_upgrade(self, connection: sa.Connection, timeout_s: int) -> bool:
        return True  # BEGIN IMMEDIATE holds the whole database, definitions too

    def unlock_after_upgrade(self, connection: sa.Connection) -> None:
        """Do nothing: the end of the transaction unlocks."""

    def is_lost(self, error: sa.exc.DBAPIError) -> bool:
        return error.connection_invalidated

    def is_busy(self, error: sa.exc.DBAPIError) -> bool:
        code = getattr(error.orig, "sqlite_errorcode", -1)
        return code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

    def is_denied(self, error: sa.exc.DBAPIError) -> bool:
        return False


def checked_address(address: str) -> sa.URL:
    """Return an address. Raises DefinitionError for one that cannot be read, names another kind of database
    or holds a password, without repeating the password."""
    try:
        url = sa.make_url(address)
    except (sa.exc.ArgumentError, ValueError):
        # without the address: what cannot be parsed may hold a password
        raise DefinitionError(
            "the ledger's address cannot be read",
            expected="mysql://user@host:port/database or sqlite:///path",
        ) from None
    if url.password is not None:
        raise DefinitionError(
            "the ledger's address must not hold a password",
            found=url.render_as_string(hide_password=True),
            action="put it into a file and name the file",
        )
    if url.get_backend_name() not in ("mysql", "mariadb", "sqlite"):
        raise DefinitionError(
            "the ledger cannot use this kind of database",
            expected="mysql, mariadb or sqlite",
            found=url.get_backend_name(),
        )
    return url
