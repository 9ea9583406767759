"""The catalogue of stored tables, asked of any Stream Load door; changes find their way to the master.

Raises the error that the door raised (`base.errors`), Unavailable when no door answered within `retry_s`. A
request that was refused is not repeated; all of them may be repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import httpx
import msgspec
from tenacity import Retrying, stop_after_delay

from rtolap.base.closing import Closing
from rtolap.base.errors import RtolapError, Unavailable
from rtolap.base.tls import trust
from rtolap.model.stored_table import StoredTable
from rtolap.wire.coordinator_request import PASSING, PAUSE, headers
from rtolap.wire.leader_finder import LeaderFinder
from rtolap.wire.stored_tables import (
    API,
    AddPartition,
    ChangeColumns,
    ColumnChange,
    CreateTable,
    PartitionInfo,
    ReadView,
    ReadViewRequest,
    TableInfo,
    TableName,
    TransactionInfo,
)

TIMEOUT_S = 30.0  # a change tells every node of the table
CONNECT_TIMEOUT_S = 2.0
RETRY_S = 20.0
T = TypeVar("T")


class StoredTablesClient(Closing):
    """Thread-safe. `urls`: base URLs of doors, in any order. `ca`: PEM whom to trust; None: the system's."""

    def __init__(
        self,
        urls: Sequence[str],
        token: str,
        *,
        timeout_s: float = TIMEOUT_S,
        retry_s: float = RETRY_S,
        transport: httpx.BaseTransport | None = None,
        ca: Path | None = None,
    ) -> None:
        self._doors = LeaderFinder(urls)
        self._urls = tuple(urls)
        self._retry_s = retry_s
        timeout = httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
        self._http = httpx.Client(
            headers=headers(token), timeout=timeout, transport=transport, verify=trust(ca)
        )

    def close(self) -> None:
        self._http.close()

    def tables(self, *, retry: bool = False) -> tuple[TableInfo, ...]:
        return self._send("GET", "/stored-tables", tuple[TableInfo, ...], retry=retry)

    def table(self, name: TableName) -> TableInfo:
        """Raises NotFound."""
        return self._send("GET", _path(name), TableInfo)

    def create(self, definition: StoredTable, *, if_not_exists: bool = False) -> TableInfo:
        """Raises DefinitionError, Refused."""
        return self._send("POST", "/stored-tables", TableInfo, CreateTable(definition, if_not_exists))

    def drop(self, name: TableName) -> None:
        """Raises NotFound, NotYet."""
        self._send("DELETE", _path(name), dict[str, str])

    def change_columns(self, name: TableName, changes: Sequence[ColumnChange]) -> TableInfo:
        """Raises NotFound, DefinitionError."""
        return self._send("POST", _path(name) + "/columns", TableInfo, ChangeColumns(tuple(changes)))

    def truncate(self, name: TableName) -> TableInfo:
        """Raises NotFound, NotYet."""
        return self._send("POST", _path(name) + "/truncate", TableInfo)

    def partitions(self, name: TableName) -> tuple[PartitionInfo, ...]:
        return self._send("GET", _path(name) + "/partitions", tuple[PartitionInfo, ...])

    def add_partition(self, name: TableName, asked: AddPartition) -> TableInfo:
        """Raises NotFound, DefinitionError, Refused, NotYet."""
        return self._send("POST", _path(name) + "/partitions", TableInfo, asked)

    def drop_partition(self, name: TableName, partition: str, *, if_exists: bool = False) -> TableInfo:
        """Raises NotFound, DefinitionError, NotYet."""
        path = f"{_path(name)}/partitions/{quote(partition, safe='')}"
        return self._send("DELETE", path + ("?if_exists=true" if if_exists else ""), TableInfo)

    def read_view(self, names: Sequence[TableName]) -> ReadView:
        """Raises NotFound."""
        return self._send("POST", "/read-views", ReadView, ReadViewRequest(tuple(names)))

    def transaction(self, db: str, label: str) -> TransactionInfo:
        """Raises NotFound."""
        path = f"/transactions/{quote(db, safe='')}/{quote(label, safe='')}"
        return self._send("GET", path, TransactionInfo)

    def _send(self, method: str, path: str, answer: type[T], body: object = None, *, retry: bool = True) -> T:
        content = None if body is None else msgspec.json.encode(body)
        if not retry:
            return self._once(method, path, answer, content)
        retrying = Retrying(retry=PASSING, wait=PAUSE, stop=stop_after_delay(self._retry_s), reraise=True)
        found: T = retrying(self._once, method, path, answer, content)
        return found

    def _once(self, method: str, path: str, answer: type[T], content: bytes | None) -> T:
        failure = "no answer"
        for url in self._doors.attempts():
            try:
                response = self._http.request(method, url + API + path, content=content)
            except httpx.TransportError as error:
                failure = f"{url}: {error or type(error).__name__}"
                self._doors.failed(url, error)
                continue
            if self._doors.answered(url, response):
                return _read(response, answer)
        raise Unavailable(
            f"no Stream Load door took {method} {path}",
            expected=f"one that answers among {', '.join(self._urls)}",
            found=failure,
            action="start one with `rtolap stream-load`, or set RTOLAP_STREAM_LOAD_DOORS",
        )


def _path(name: TableName) -> str:
    return f"/stored-tables/{quote(name.db, safe='')}/{quote(name.name, safe='')}"


def _read(response: httpx.Response, answer: type[T]) -> T:
    try:
        return msgspec.json.decode(response.content, type=answer)
    except msgspec.MsgspecError as error:
        raise RtolapError(
            f"{response.request.method} {response.request.url} gave an answer this client cannot read",
            found=str(error),
            action="run client and door in the same version",
        ) from error
