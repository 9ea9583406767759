"""PEP 249 over the query service's HTTP endpoint.

with connect("http://127.0.0.1:7090", token="…") as connection:
    cursor = connection.cursor()
    cursor.execute("SELECT COUNT(*) FROM flights WHERE carrier = ?", ("AA",))
    cursor.fetchone()
    cursor.messages  # [(Warning, …)]: how the rows are meant, where that is not what was asked to the letter

What a connection was answered once is in each of its later answers. `connection.session_token` carries that
to a connection to another query service: connect(url, token="…", session_token=connection.session_token).

What may be imported from outside is what this module exports.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rtolap.base.closeable import Closeable
from rtolap.base.errors import (
    DefinitionError,
    NotFound,
    OutOfRange,
    QueryError,
    QueryInterrupted,
    QueryTimeout,
    RtolapError,
    Unavailable,
    UnsupportedSql,
)
from rtolap.protocols.query.client import QueryClient
from rtolap.protocols.query.messages import QueryAnswer, QueryWarning

__all__ = [
    "Connection",
    "Cursor",
    "DataError",
    "DatabaseError",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "Warning",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]

apilevel = "2.0"
threadsafety = 2  # threads may share a connection, not a cursor
paramstyle = "qmark"


class Warning(Exception):  # PEP 249 gives the name
    """The warning of PEP 249, which `Cursor.messages` holds. `code` and `level` are those of QueryWarning."""

    def __init__(self, warning: QueryWarning) -> None:
        self.code, self.level = warning.code, warning.level
        super().__init__(warning.message)


class Error(Exception):
    """The base of this module's errors, as PEP 249 has it. `code` is the one of rtolap's error tree."""

    def __init__(self, message: str, code: str = "error") -> None:
        self.code = code
        super().__init__(message)


class InterfaceError(Error):
    """The module was used wrongly."""


class DatabaseError(Error):
    """The service refused or failed."""


class OperationalError(DatabaseError):
    """The service, or what it needs, is not there."""


class ProgrammingError(DatabaseError):
    """The SQL is wrong, or a cube cannot answer it."""


class DataError(DatabaseError):
    """A value that its type cannot hold was computed."""


class NotSupportedError(DatabaseError):
    """SQL that others may know."""


class IntegrityError(DatabaseError):
    """PEP 249 wants the name; nothing raises it, since no statement writes rows."""


class InternalError(DatabaseError):
    """PEP 249 wants the name; nothing raises it, what fails within the service is a DatabaseError."""


# Of a class and those below it; the first that fits counts.
_KINDS: tuple[tuple[type[RtolapError], type[DatabaseError]], ...] = (
    (QueryTimeout, OperationalError),
    (QueryInterrupted, OperationalError),
    (OutOfRange, DataError),
    (UnsupportedSql, NotSupportedError),
    (QueryError, ProgrammingError),
    (NotFound, ProgrammingError),
    (Unavailable, OperationalError),
)


def connect(url: str, **credentials: Any) -> Connection:
    """Connect as PEP 249 says. The arguments are those of QueryClient. Raises InterfaceError for those that
    lead nowhere."""
    try:
        return Connection(QueryClient(url, **credentials))
    except DefinitionError as error:
        raise InterfaceError(str(error), error.code) from error


class Connection(Closeable):
    """No statement writes rows, and a definition stands at once: commit and rollback have nothing to do."""

    def __init__(self, client: QueryClient) -> None:
        self._client = client
        self._closed = False

    @property
    def session_token(self) -> str:
        """A token of the answers that the connection has received; empty before the first one.

        Not in PEP 249.
        """
        return self._client.session_token

    def cursor(self) -> Cursor:
        if self._closed:
            raise InterfaceError("the connection is closed")
        return Cursor(self._client)

    def commit(self) -> None:
        """Do nothing, as there is nothing to commit."""

    def rollback(self) -> None:
        """Do nothing, as there is nothing to roll back."""

    def close(self) -> None:
        self._closed = True
        self._client.close()


class Cursor:
    """The cursor of PEP 249, which runs one statement at a time and holds all of its rows in memory."""

    arraysize = 1

    def __init__(self, client: QueryClient) -> None:
        self._client = client
        self._answer: QueryAnswer | None = None
        self._next = 0
        self.messages: list[tuple[type[Warning], Warning]] = []  # of the last statement, as PEP 249 has it

    @property
    def description(self) -> list[tuple[Any, ...]] | None:
        """The columns of the answer; None without one, and for statements without rows, such as CREATE
        TABLE.
        """
        if self._answer is None or not self._answer.columns:
            return None
        return [(column.name, column.type, None, None, None, None, True) for column in self._answer.columns]

    @property
    def rowcount(self) -> int:
        return -1 if self._answer is None or not self._answer.columns else len(self._answer.rows)

    @property
    def positions(self) -> dict[str, dict[int, int]]:
        """The positions that the last answer holds. Not in PEP 249."""
        return self._answered().positions

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Cursor:
        self._answer, self._next = None, 0
        self.messages.clear()
        try:
            self._answer = self._client.query(sql, parameters)
        except RtolapError as error:
            kind = next((kind for of, kind in _KINDS if isinstance(error, of)), DatabaseError)
            raise kind(str(error), error.code) from error
        self.messages += [(Warning, Warning(warning)) for warning in self._answer.warnings]
        return self

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        for parameters in rows:
            self.execute(sql, parameters)

    def fetchone(self) -> tuple[Any, ...] | None:
        found = self.fetchmany(1)
        return found[0] if found else None

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        start, self._next = self._next, self._next + (size or self.arraysize)
        return list(self._result().rows[start : self._next])

    def fetchall(self) -> list[tuple[Any, ...]]:
        start, self._next = self._next, len(self._result().rows)
        return list(self._result().rows[start:])

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.fetchall())

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Do nothing, as PEP 249 permits."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Do nothing, as PEP 249 permits."""

    def close(self) -> None:
        self._answer = None
        self.messages.clear()

    def _answered(self) -> QueryAnswer:
        if self._answer is None:
            raise InterfaceError("no statement was executed")
        return self._answer

    def _result(self) -> QueryAnswer:
        answer = self._answered()
        if not answer.columns:
            raise InterfaceError("the statement has answered no rows")
        return answer
