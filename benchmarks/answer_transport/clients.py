"""Clients of the same answers: by Flight as the query service has it, and two by HTTP.

`httpx` is what the product's HTTP clients are made of. `http.client` is about the least that an HTTP client
in Python can do: it reads an answer of known length into one block of memory.
"""

from __future__ import annotations

import http.client
import json
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import httpx
import msgspec
import pyarrow as pa
from rtolap.base.closeable import Closeable
from rtolap.base.errors import Impostor, from_dict
from rtolap.base.mutual_proof import ANSWER_HEADER, ClientSession, Hello
from rtolap.protocols.receiver.client import ReceiverClient
from rtolap.protocols.receiver.messages import ANSWER_KEY, PartialAnswer, PartialQuery
from rtolap.protocols.rest.clients import SHARED_BY_THREADS
from rtolap.protocols.rest.proven import SESSION_PATH, ProvenAuth
from rtolap.protocols.storage.client import StorageClient
from rtolap.protocols.storage.messages import CopyRequest

from benchmarks.answer_transport.endpoint import COPY_PATH, PARTIALS_PATH

TIMEOUT_S = 60.0


class Answers(Protocol):
    """A client of a receiver and of a storage node. Thread-safe; raises what the server names."""

    def partials(self, query: PartialQuery) -> tuple[pa.Table, PartialAnswer]: ...

    def copy(self, request: CopyRequest) -> Iterator[pa.RecordBatch]: ...

    def close(self) -> None: ...


class FlightAnswers(Closeable):
    """The product's own clients."""

    def __init__(self, receiver: str, node: str, token: str) -> None:
        self._receiver = ReceiverClient(receiver, token)
        self._node = StorageClient(node, token)

    def partials(self, query: PartialQuery) -> tuple[pa.Table, PartialAnswer]:
        return self._receiver.query(query)

    def copy(self, request: CopyRequest) -> Iterator[pa.RecordBatch]:
        return iter(self._node.copy(request))

    def close(self) -> None:
        self._receiver.close()
        self._node.close()


class HttpxAnswers(Closeable):
    """httpx with the product's proof of both ends. That reads an answer to its end before it is given out."""

    def __init__(self, address: str, token: str) -> None:
        self._url = f"http://{address}"
        self._http = httpx.Client(auth=ProvenAuth(token), timeout=TIMEOUT_S, limits=SHARED_BY_THREADS)

    def partials(self, query: PartialQuery) -> tuple[pa.Table, PartialAnswer]:
        return _answer_in(pa.py_buffer(self._post(PARTIALS_PATH, query)))

    def copy(self, request: CopyRequest) -> Iterator[pa.RecordBatch]:
        yield from pa.ipc.open_stream(pa.py_buffer(self._post(COPY_PATH, request)))

    def close(self) -> None:
        self._http.close()

    def _post(self, path: str, body: msgspec.Struct) -> bytes:
        response = self._http.post(self._url + path, content=msgspec.json.encode(body))
        if response.status_code != httpx.codes.OK:
            raise from_dict(response.json())
        return response.content


class PlainHttpAnswers(Closeable):
    """`http.client`, with a connection for each call under way and one session for all."""

    def __init__(self, address: str, token: str) -> None:
        self._address = address
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._session = self._open(token)

    def partials(self, query: PartialQuery) -> tuple[pa.Table, PartialAnswer]:
        with self._posted(PARTIALS_PATH, query) as response:
            buffer = pa.allocate_buffer(response.length or 0)
            into, at = memoryview(buffer).cast("B"), 0
            while at < len(into):
                read = response.readinto(into[at:])
                if not read:
                    raise http.client.IncompleteRead(bytes(into[:0]), len(into) - at)
                at += read
            response.read()  # the end, so that the connection serves the next call
        return _answer_in(buffer)

    def copy(self, request: CopyRequest) -> Iterator[pa.RecordBatch]:
        with self._posted(COPY_PATH, request) as response:
            yield from pa.ipc.open_stream(pa.PythonFile(response, mode="r"))
            response.read()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    @contextmanager
    def _posted(self, path: str, body: msgspec.Struct) -> Iterator[http.client.HTTPResponse]:
        """Give the connection back at the end, unless its answer was not read to its end."""
        response, connection, number = self._exchange(path, msgspec.json.encode(body))
        self._session.answered(response.getheader(ANSWER_HEADER, ""))
        if not self._session.take_proof(number):
            connection.close()
            raise Impostor(f"{self._address} does not prove that it knows the secret of this cluster")
        if response.status != http.client.OK:
            error = from_dict(json.loads(response.read()))
            self._idle.append(connection)
            raise error
        yield response
        self._idle.append(connection)

    def _exchange(
        self, path: str, body: bytes
    ) -> tuple[http.client.HTTPResponse, http.client.HTTPConnection, int]:
        """Ask on an idle connection; on a new one where the server has closed that meanwhile."""
        while True:
            number = self._session.next_number()
            headers = {"Authorization": self._session.header(number).decode()}
            connection, reused = self._connection()
            try:
                connection.request("POST", path, body, headers)
                return connection.getresponse(), connection, number
            except ConnectionError:
                connection.close()
                if not reused:
                    raise

    def _connection(self) -> tuple[http.client.HTTPConnection, bool]:
        """Return a connection, and whether it has served a call."""
        try:
            return self._idle.pop(), True
        except IndexError:
            return http.client.HTTPConnection(self._address, timeout=TIMEOUT_S), False

    def _open(self, token: str) -> ClientSession:
        hello = Hello(token, self._address)
        connection, _ = self._connection()
        connection.request("GET", SESSION_PATH, headers={"Authorization": hello.header().decode()})
        offer = from_dict(json.loads(connection.getresponse().read()))
        self._idle.append(connection)
        session = hello.session(str(offer))
        if session is None:
            raise Impostor(f"{self._address} does not prove that it knows the secret of this cluster")
        return session


def _answer_in(data: pa.Buffer) -> tuple[pa.Table, PartialAnswer]:
    """Return the table of an Arrow stream, whose columns share the memory of `data`, and what it holds."""
    table = pa.ipc.open_stream(data).read_all()
    answer = msgspec.json.decode(table.schema.metadata[ANSWER_KEY], type=PartialAnswer)
    return table.replace_schema_metadata(None), answer
