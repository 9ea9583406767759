"""The loader's REST endpoint, on loopback by default; see `protocols.loader`."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

from rtolap.base.addresses import host_port
from rtolap.base.decoding import decode_json
from rtolap.base.errors import DefinitionError, RtolapError
from rtolap.base.metrics import Metrics
from rtolap.base.undecodable import UNDECODABLE
from rtolap.protocols.loader.letters import LETTERS_API, NEWEST_DEFAULT, DropRequest, ReplayRequest
from rtolap.protocols.loader.messages import API, PROCESS_API, LoaderProcessStatus, LoaderStatus
from rtolap.servers.http_guard import guard
from rtolap.servers.http_server import HttpConnections, HttpServer
from rtolap.servers.limits import HttpLimits
from rtolap.servers.listening import listening_sockets
from rtolap.stored.loader.letters.access import LetterAccess
from rtolap.stored.metastore.load_jobs import LoadJobEvent

T = TypeVar("T")

BODY_BYTES_MAX = 64 << 10  # no route has one
_WANTED = {"pause": LoadJobEvent.PAUSE, "resume": LoadJobEvent.RESUME, "stop": LoadJobEvent.STOP}


@dataclass(frozen=True)
class LoaderEndpoint:
    """Where the endpoint of a loader's process is, and what it shows besides the job.

    Attributes:
        announced_host: where others reach `host`.
        show_clients: adds the measurements of the process's Kafka clients to its metrics.
        letters: serves the dead letters of the job.
    """

    host: str
    announced_host: str
    port: int
    token: str
    limits: HttpLimits
    show_clients: Callable[[Metrics], None] = lambda metrics: None
    letters: LetterAccess | None = None

    @contextmanager
    def listening(self) -> Iterator[tuple[list[socket.socket], str]]:
        """Hold its sockets, and return them with its address. Raises Unavailable for a port that is taken."""
        with ExitStack() as closing:
            opened = listening_sockets("a loader", self.host, self.port)
            sockets = [closing.enter_context(sock) for sock in opened]
            yield sockets, host_port(self.announced_host, sockets[0].getsockname()[1])

    def serve(
        self,
        job: str,
        sockets: list[socket.socket],
        metrics: Metrics,
        status: Callable[[], LoaderStatus],
        want: Callable[[LoadJobEvent], None],
        process_status: Callable[[], LoaderProcessStatus] | None = None,
    ) -> HttpServer:
        """Serve from a thread of its own, until `should_exit`. The others are as in `make_app`."""
        self.show_clients(metrics)
        app = make_app(job, self.token, metrics, status, want, self.limits, process_status, self.letters)
        server = HttpServer(app, HttpConnections(metrics, self.limits))
        threading.Thread(target=server.run, kwargs={"sockets": sockets}, name="endpoint", daemon=True).start()
        return server


def make_app(
    job: str,
    token: str,
    metrics: Metrics,
    status: Callable[[], LoaderStatus],
    want: Callable[[LoadJobEvent], None],
    limits: HttpLimits,
    process_status: Callable[[], LoaderProcessStatus] | None = None,
    letters: LetterAccess | None = None,
) -> FastAPI:
    """Return the loader's application. `want` notes the wanted state in the ledger, and has the process
    follow it. `process_status` is that of one of several processes. `letters` serves its dead letters."""
    app = FastAPI(title="rtolap loader", docs_url=None, redoc_url=None, openapi_url=None)
    guard(app, metrics, token, body_bytes_max=lambda path: BODY_BYTES_MAX, limits=limits)

    @app.exception_handler(RtolapError)
    async def failed(_request: Request, error: RtolapError) -> Response:
        return _json(error.to_dict(), error.http_status)

    @app.get("/health")
    def health() -> Response:
        return _json({"status": "ok", "role": "loader", "job": job})

    @app.get(API)
    def show() -> Response:
        return _json(status())

    if process_status is not None:

        @app.get(PROCESS_API)
        def show_process() -> Response:
            return _json(process_status())

    def changing(wanted: LoadJobEvent) -> Callable[[], Response]:
        def change() -> Response:
            want(wanted)
            return _json(status())

        return change

    for name, wanted in _WANTED.items():
        app.post(f"{API}/{name}")(changing(wanted))
    if letters is not None:
        _serve_letters(app, letters)
    return app


def _serve_letters(app: FastAPI, letters: LetterAccess) -> None:
    @app.get(LETTERS_API)
    def show_letters(newest: int = NEWEST_DEFAULT, reason: str = "", state: str = "") -> Response:
        return _json(letters.list(newest, reason=reason, state=state))

    @app.post(f"{LETTERS_API}/replay")
    async def replay(request: Request) -> Response:
        asked = decoded(await request.body(), ReplayRequest)
        return _json(await run_in_threadpool(letters.replay, asked))

    @app.post(f"{LETTERS_API}/drop")
    async def drop(request: Request) -> Response:
        asked = decoded(await request.body(), DropRequest)
        return _json(await run_in_threadpool(letters.drop, asked))


def decoded(body: bytes, kind: type[T]) -> T:
    try:
        return decode_json(body, kind)
    except UNDECODABLE as error:
        raise DefinitionError(f"the request is no {kind.__name__}", found=str(error)) from error


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
