"""A guarded HTTP endpoint that answers what receivers and storage nodes answer by Flight.

    POST /api/v1/partials   a PartialQuery as JSON  →  an Arrow stream of known length
    POST /api/v1/copy       a CopyRequest as JSON   →  an Arrow stream in chunks, sent as it is made

Errors are answers with the JSON of `RtolapError.to_dict()`. Callers prove that they know the token, and
every answer proves that the server does.
"""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse
from rtolap.base.addresses import host_port
from rtolap.base.closeable import Closeable
from rtolap.base.errors import RtolapError
from rtolap.base.metrics import Metrics
from rtolap.base.mutual_proof import ServerSessions
from rtolap.protocols.receiver.messages import PartialQuery
from rtolap.protocols.storage.messages import CopyRequest
from rtolap.servers.flight_server import body_of
from rtolap.servers.http_guard import guard, json_answer
from rtolap.servers.http_server import HttpConnections, HttpServer
from rtolap.servers.limits import HttpLimits
from rtolap.servers.listening import listening_sockets
from starlette.types import Receive, Scope, Send

PARTIALS_PATH, COPY_PATH = "/api/v1/partials", "/api/v1/copy"
ARROW_STREAM = "application/vnd.apache.arrow.stream"
BODY_BYTES_MAX = 16 << 20  # as of a message to the Flight server
THREADS = 32
WHOLE_BYTES = 256 << 10  # an answer up to this size is copied into one piece
GRACEFUL_S = 1

Partials = Callable[[PartialQuery], pa.Table]
Copies = Callable[[CopyRequest], Iterator[pa.RecordBatch]]


class AnswerEndpoint(Closeable):
    """Serves from its making until `close`, on a thread of its own. `port` is the one that it got."""

    def __init__(
        self, partials: Partials, copies: Copies, *, host: str, token: str, metrics: Metrics
    ) -> None:
        sockets = listening_sockets("answers", host, 0)
        self.port: int = sockets[0].getsockname()[1]
        self._partials, self._copies = partials, copies
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="answers")
        app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
        limits = HttpLimits()
        guard(
            app,
            metrics,
            token,
            open_paths=(),
            body_bytes_max=lambda path: BODY_BYTES_MAX,
            limits=limits,
            sessions=ServerSessions(token, host_port(host, self.port)),
        )
        app.exception_handler(RtolapError)(_refused)
        # Plain routes without FastAPI's dependencies and models: HTTP is measured at its best.
        app.router.add_route(PARTIALS_PATH, self._answer_partials, methods=["POST"])
        app.router.add_route(COPY_PATH, self._answer_copy, methods=["POST"])
        self._server = HttpServer(
            app, HttpConnections(metrics, limits), lifespan="off", graceful_s=GRACEFUL_S
        )
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": sockets}, name="answers", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._pool.shutdown()

    async def _answer_partials(self, request: Request) -> Response:
        query = body_of(await request.body(), PartialQuery)
        loop = asyncio.get_running_loop()
        return _Whole(await loop.run_in_executor(self._pool, lambda: pieces_of(self._partials(query))))

    async def _answer_copy(self, request: Request) -> Response:
        wanted = body_of(await request.body(), CopyRequest)
        pieces = _stream_pieces(self._copies(wanted))
        loop = asyncio.get_running_loop()

        async def made() -> AsyncIterator[bytes]:
            while (piece := await loop.run_in_executor(self._pool, next, pieces, None)) is not None:
                yield piece

        return StreamingResponse(made(), media_type=ARROW_STREAM)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RtolapError)
    return json_answer(request, error)


class _Sink:
    """A file for Arrow's writer which keeps the written buffers as they are."""

    closed = False

    def __init__(self) -> None:
        self.pieces: list[memoryview] = []

    def write(self, data: bytes | pa.Buffer) -> int:
        view = memoryview(data).cast("B")
        self.pieces.append(view)
        return len(view)

    def flush(self) -> None:
        return

    def close(self) -> None:
        self.closed = True


def pieces_of(table: pa.Table) -> list[bytes | memoryview]:
    """Return the table as an Arrow stream. Large buffers are not copied, small ones are joined."""
    if table.nbytes <= WHOLE_BYTES:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return [sink.getvalue().to_pybytes()]
    kept = _Sink()
    with pa.ipc.new_stream(pa.PythonFile(kept, mode="w"), table.schema) as writer:
        writer.write_table(table)
    pieces: list[bytes | memoryview] = []
    small: list[memoryview] = []
    for piece in kept.pieces:
        if len(piece) <= WHOLE_BYTES:
            small.append(piece)
            continue
        pieces += [b"".join(small), piece]
        small = []
    return [piece for piece in (*pieces, b"".join(small)) if len(piece)]


def _stream_pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield an Arrow stream, a piece for each batch."""
    first = next(batches)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, first.schema) as writer:
        batch: pa.RecordBatch | None = first
        while batch is not None:
            writer.write_batch(batch)
            yield sink.getvalue()
            sink.seek(0)
            sink.truncate()
            batch = next(batches, None)
    yield sink.getvalue()


class _Whole(Response):
    """An answer of known length, so that the server sends its pieces without joining them."""

    def __init__(self, pieces: list[bytes | memoryview]) -> None:
        super().__init__(media_type=ARROW_STREAM)
        self._pieces = pieces
        self.headers["content-length"] = str(sum(map(len, pieces)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        for piece in self._pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
