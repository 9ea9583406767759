"""Client of the catalogue of stored tables, at any front end; changes find their way to the master.

Raises the error that the front end raised (`base.errors`); Unavailable when no front end answered within
`retry_s`, or CommitUnknown where a front end may have made the change and its answer was lost. A request
that was refused is not repeated. All of them may be: a change carries one id for all the times that it is
sent, and is made once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import httpx
import msgspec
from tenacity import RetryCallState, Retrying

from rtolap.base.closeable import Closeable
from rtolap.base.decoding import decode_json
from rtolap.base.errors import CommitUnknown, Unavailable
from rtolap.base.tls import trust
from rtolap.model.stored.table import StoredTable
from rtolap.protocols.rest.clients import service_client
from rtolap.protocols.rest.error_responses import unreadable
from rtolap.protocols.rest.leader_finder import LeaderFinder
from rtolap.protocols.rest.request import PASSING, PAUSE, headers
from rtolap.protocols.rest.request_ids import HEADER, new_request_id
from rtolap.protocols.storage.messages import Drain, MoveInfo, MovesInfo, Rebalance
from rtolap.protocols.stored_tables.messages import (
    API,
    AddPartition,
    ChangeColumns,
    ColumnChange,
    CreateDatabase,
    CreateTable,
    LoadedVersions,
    LoadedVersionsRequest,
    PartitionInfo,
    ReadView,
    ReadViewRequest,
    TableInfo,
    TableName,
    TableTablets,
    TransactionInfo,
)

TIMEOUT_S = 30.0  # a change tells every node of the table
READ_TIMEOUT_S = 2.0  # what only reads comes from one ledger: a front end that stands still is passed by
CONNECT_TIMEOUT_S = 2.0
RETRY_S = 20.0
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
T = TypeVar("T")


@dataclass
class _Request:
    """A request of a client.

    Attributes:
        request_id: of a change; None for what only reads.
        in_doubt: a front end was sent the change and did not answer.
    """

    method: str
    path: str
    content: bytes | None
    request_id: str | None
    in_doubt: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class StoredTablesClient(Closeable):
    """A client of the front ends. It is thread-safe. `urls` are the base URLs of front ends, in any order.
    `ca` is the PEM that their certificates are checked with; None means the system's."""

    def __init__(
        self,
        urls: Sequence[str],
        token: str,
        *,
        timeout_s: float = TIMEOUT_S,
        read_timeout_s: float = READ_TIMEOUT_S,
        retry_s: float = RETRY_S,
        transport: httpx.BaseTransport | None = None,
        ca: Path | None = None,
    ) -> None:
        self._endpoints = LeaderFinder(urls)
        self._urls = tuple(urls)
        self._retry_s = retry_s
        self._change_timeout = httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
        self._read_timeout = httpx.Timeout(min(timeout_s, read_timeout_s))
        self._http = service_client(headers=headers(token), transport=transport, verify=trust(ca))

    def close(self) -> None:
        self._http.close()

    def tables(self, *, retry: bool = False) -> tuple[TableInfo, ...]:
        return self._send("GET", "/stored-tables", tuple[TableInfo, ...], retry=retry)

    def table(self, name: TableName) -> TableInfo:
        """Return a table. Raises NotFound."""
        return self._send("GET", _path(name), TableInfo)

    def databases(self) -> tuple[str, ...]:
        """Return the databases. They come with the tables, in a request without a retry."""
        return self._send("GET", "/stored-databases", tuple[str, ...], retry=False)

    def create_database(self, name: str, *, if_not_exists: bool = False) -> None:
        """Create a database. Raises DefinitionError, Refused."""
        self._change("POST", "/stored-databases", dict[str, str], CreateDatabase(name, if_not_exists))

    def drop_database(self, name: str) -> None:
        """Drop a database. Raises NotFound, Refused."""
        self._change("DELETE", f"/stored-databases/{quote(name, safe='')}", dict[str, str])

    def create(self, definition: StoredTable, *, if_not_exists: bool = False) -> TableInfo:
        """Create a table. Raises DefinitionError, Refused."""
        return self._change("POST", "/stored-tables", TableInfo, CreateTable(definition, if_not_exists))

    def drop(self, name: TableName) -> None:
        """Drop a table. Raises NotFound, NotYet."""
        self._change("DELETE", _path(name), dict[str, str])

    def change_columns(self, name: TableName, changes: Sequence[ColumnChange]) -> TableInfo:
        """Change the columns of a table. Raises NotFound, DefinitionError."""
        return self._change("POST", _path(name) + "/columns", TableInfo, ChangeColumns(tuple(changes)))

    def truncate(self, name: TableName) -> TableInfo:
        """Truncate a table. Raises NotFound, NotYet."""
        return self._change("POST", _path(name) + "/truncate", TableInfo)

    def partitions(self, name: TableName) -> tuple[PartitionInfo, ...]:
        return self._send("GET", _path(name) + "/partitions", tuple[PartitionInfo, ...])

    def loaded_versions(self, name: TableName, request: LoadedVersionsRequest) -> LoadedVersions:
        """Return the visible versions, and the rows that were loaded beyond those that are known."""
        return self._send("POST", f"{_path(name)}/loaded-versions", LoadedVersions, request)

    def tablets(self, name: TableName) -> TableTablets:
        """Return the replicas of a table, as their nodes report them now."""
        return self._send("GET", f"{_path(name)}/tablets", TableTablets)

    def add_partition(self, name: TableName, request: AddPartition) -> TableInfo:
        """Add a partition. Raises NotFound, DefinitionError, Refused, NotYet."""
        return self._change("POST", _path(name) + "/partitions", TableInfo, request)

    def drop_partition(self, name: TableName, partition: str, *, if_exists: bool = False) -> TableInfo:
        """Drop a partition. Raises NotFound, DefinitionError, NotYet."""
        path = f"{_path(name)}/partitions/{quote(partition, safe='')}"
        return self._change("DELETE", path + ("?if_exists=true" if if_exists else ""), TableInfo)

    def read_view(self, names: Sequence[TableName]) -> ReadView:
        """Return the view that one statement reads. Raises NotFound."""
        return self._send("POST", "/read-views", ReadView, ReadViewRequest(tuple(names)))

    def transaction(self, db: str, label: str) -> TransactionInfo:
        """Return the transaction of a label. Raises NotFound."""
        path = f"/transactions/{quote(db, safe='')}/{quote(label, safe='')}"
        return self._send("GET", path, TransactionInfo)

    def transactions(self, db: str, like: str) -> tuple[TransactionInfo, ...]:
        """Return the transactions whose labels are LIKE the pattern, the latest first, 1000 at most."""
        path = f"/transactions/{quote(db, safe='')}?like={quote(like, safe='')}"
        return self._send("GET", path, tuple[TransactionInfo, ...])

    def storage_moves(self) -> MovesInfo:
        """Return the storage nodes with what they have, and the replicas that move."""
        return self._send("GET", "/storage-moves", MovesInfo, retry=False)

    def drain(self, node: str, *, undo: bool = False) -> None:
        """Have all replicas of a node go to other nodes. Raises NotFound, Refused."""
        self._change("POST", f"/storage-nodes/{quote(node, safe='')}/drain", dict[str, str], Drain(undo))

    def rebalance(self, *, plan_only: bool = False) -> tuple[MoveInfo, ...]:
        """Have replicas move until bytes are even; return the moves. Raises Refused."""
        path = "/storage-moves/rebalance"
        return self._change("POST", path, tuple[MoveInfo, ...], Rebalance(plan_only))

    def _send(self, method: str, path: str, answer: type[T], body: object = None, *, retry: bool = True) -> T:
        """Send a request that only reads."""
        request = _Request(method, path, _content(body), None)
        return self._repeat(request, answer) if retry else self._once(request, answer)

    def _change(self, method: str, path: str, answer: type[T], body: object = None) -> T:
        return self._repeat(_Request(method, path, _content(body), new_request_id()), answer)

    def _repeat(self, request: _Request, answer: type[T]) -> T:
        def over(state: RetryCallState) -> bool:
            """Return whether to give up. A change whose answer did not come in its time is sent once more,
            however long that was: the ledger has its outcome."""
            late = (state.seconds_since_start or 0) >= self._retry_s
            return late and not (request.in_doubt and state.attempt_number == 1)

        retrying = Retrying(retry=PASSING, wait=PAUSE, stop=over, reraise=True)
        result: T = retrying(self._once, request, answer)
        return result

    def _once(self, request: _Request, answer: type[T]) -> T:
        failure = "no answer"
        reads = request.request_id is None
        timeout = self._read_timeout if reads else self._change_timeout
        sent_headers = {} if request.request_id is None else {HEADER: request.request_id}
        for url in self._endpoints.attempts():
            try:
                response = self._http.request(
                    request.method,
                    url + API + request.path,
                    content=request.content,
                    headers=sent_headers,
                    timeout=timeout,
                )
            except httpx.TransportError as error:
                failure = f"{url}: {error or type(error).__name__}"
                request.in_doubt |= not reads and not isinstance(error, _NOT_SENT)
                self._endpoints.failed(url, error)
                continue
            if self._endpoints.answered(url, response):
                return _read(response, answer)
        if request.in_doubt:
            raise CommitUnknown(
                f"no front end reported the outcome of {request}",
                expected=f"an answer of {', '.join(self._urls)}",
                found=failure,
                action="see whether it was done before you ask for it again",
            )
        raise Unavailable(
            f"no front end took {request}",
            expected=f"one that answers among {', '.join(self._urls)}",
            found=failure,
            action="start one with `rtolap stream-load`, or set RTOLAP_STREAM_LOAD_ENDPOINTS",
        )


def _content(body: object) -> bytes | None:
    return None if body is None else msgspec.json.encode(body)


def _path(name: TableName) -> str:
    return f"/stored-tables/{quote(name.db, safe='')}/{quote(name.name, safe='')}"


def _read(response: httpx.Response, answer: type[T]) -> T:
    try:
        return decode_json(response.content, answer)
    except msgspec.MsgspecError as error:
        raise unreadable(response, error, "endpoint") from error
