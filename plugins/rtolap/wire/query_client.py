"""Client of the query service over HTTP, and a small PEP 249 module over it (`connect`).

with connect("http://127.0.0.1:7090", token="…") as connection:
    cursor = connection.cursor()
    cursor.execute("SELECT COUNT(*) FROM flights WHERE carrier = ?", ("AA",))
    cursor.fetchone()
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
import msgspec

from rtolap.base.errors import DefinitionError, RtolapError, Unavailable, from_dict

apilevel = "2.0"
threadsafety = 2  # threads may share a connection, not a cursor
paramstyle = "qmark"

DEADLINE_GRACE_S = 5.0  # the service gives up by itself; its words are better than a broken call


class Error(Exception):
    """PEP 249: base of the errors of this module. `code` is the one of rtolap's error tree."""

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


class QueryColumn(msgspec.Struct, frozen=True):
    name: str
    type: str


class QueryAnswer(msgspec.Struct, frozen=True):
    """`positions`: cube → partition → next offset; the answer holds exactly the events below."""

    columns: tuple[QueryColumn, ...]
    rows: tuple[tuple[Any, ...], ...]
    positions: dict[str, dict[int, int]] = {}
    stats: tuple[dict[str, Any], ...] = ()


class QueryClient:
    """Thread-safe. Give a token, or a user and a password. Raises the service's errors of the tree.

    `ca_file`: PEM of whom an https address is trusted to; None: the system's.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        user: str | None = None,
        password: str = "",
        timeout_ms: int = 60_000,
        ca_file: Path | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self.timeout_ms = timeout_ms
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        auth = httpx.BasicAuth(user, password) if user is not None and token is None else None
        self._http = httpx.Client(headers=headers, auth=auth, verify=_trust(ca_file))

    def query(
        self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = (), *, timeout_ms: int | None = None
    ) -> QueryAnswer:
        limit_ms = timeout_ms or self.timeout_ms
        bound = dict(parameters) if isinstance(parameters, Mapping) else list(parameters)
        body = {"sql": sql, "parameters": bound, "timeout_ms": limit_ms}
        try:
            response = self._http.post(
                f"{self.url}/api/v1/query",
                content=msgspec.json.encode(body),
                headers={"Content-Type": "application/json"},
                timeout=limit_ms / 1000 + DEADLINE_GRACE_S,
            )
        except httpx.HTTPError as error:
            raise Unavailable(
                f"the query service {self.url} does not answer",
                found=str(error),
                action="start it with `rtolap query serve`",
            ) from error
        if response.status_code != 200:
            raise _error_of(response)
        return msgspec.json.decode(response.content, type=QueryAnswer)

    def health(self) -> dict[str, str]:
        try:
            response = self._http.get(f"{self.url}/health", timeout=DEADLINE_GRACE_S)
        except httpx.HTTPError as error:
            raise Unavailable(f"the query service {self.url} does not answer", found=str(error)) from error
        if response.status_code != 200:
            raise _error_of(response)
        return msgspec.json.decode(response.content, type=dict[str, str])

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> QueryClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _trust(ca_file: Path | None) -> ssl.SSLContext | bool:
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise DefinitionError(
            "the file of trusted certificates cannot be used", expected=f"PEM in {ca_file}", found=str(error)
        ) from error


def _error_of(response: httpx.Response) -> RtolapError:
    try:
        payload = msgspec.json.decode(response.content, type=dict[str, Any])
    except msgspec.MsgspecError:
        payload = {}
    if "code" not in payload:
        payload = {"code": "error", "message": f"HTTP {response.status_code}: {response.text[:500]}"}
    return from_dict(payload)


def connect(url: str, **credentials: Any) -> Connection:
    """PEP 249. Arguments as QueryClient's."""
    return Connection(QueryClient(url, **credentials))


class Connection:
    """Nothing is written, so commit and rollback have nothing to do."""

    def __init__(self, client: QueryClient) -> None:
        self._client = client
        self._closed = False

    def cursor(self) -> Cursor:
        if self._closed:
            raise InterfaceError("the connection is closed")
        return Cursor(self._client)

    def commit(self) -> None:
        """Nothing to commit."""

    def rollback(self) -> None:
        """Nothing to roll back."""

    def close(self) -> None:
        self._closed = True
        self._client.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Cursor:
    arraysize = 1

    def __init__(self, client: QueryClient) -> None:
        self._client = client
        self._answer: QueryAnswer | None = None
        self._next = 0

    @property
    def description(self) -> list[tuple[Any, ...]] | None:
        if self._answer is None:
            return None
        return [(column.name, column.type, None, None, None, None, True) for column in self._answer.columns]

    @property
    def rowcount(self) -> int:
        return -1 if self._answer is None else len(self._answer.rows)

    @property
    def positions(self) -> dict[str, dict[int, int]]:
        """Not in PEP 249: what the last answer holds."""
        return self._result().positions

    def execute(self, sql: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> Cursor:
        self._answer, self._next = None, 0
        try:
            self._answer = self._client.query(sql, parameters)
        except RtolapError as error:
            kind = {"query": ProgrammingError, "not_found": ProgrammingError, "unavailable": OperationalError}
            raise kind.get(error.code, DatabaseError)(str(error), error.code) from error
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
        """PEP 249 lets this do nothing."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """PEP 249 lets this do nothing."""

    def close(self) -> None:
        self._answer = None

    def _result(self) -> QueryAnswer:
        if self._answer is None:
            raise InterfaceError("no statement was executed")
        return self._answer
