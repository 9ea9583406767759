"""The agent's REST server listens on loopback by default and takes a bearer token on everything but
`/health`."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import FastAPI, Query, Request, Response

from rtolap.agent.commands import Commands
from rtolap.agent.supervisor import Supervisor
from rtolap.base.decoding import decode_json
from rtolap.base.errors import DefinitionError, RtolapError
from rtolap.base.undecodable import UNDECODABLE
from rtolap.protocols.agent.messages import LOG_BYTES_MAX, GenerationRef, ProcessList, ProcessSpec, Shutdown
from rtolap.servers.http_guard import guard
from rtolap.servers.http_server import HttpConnections, HttpServer
from rtolap.servers.limits import HttpLimits

log = logging.getLogger(__name__)

BODY_BYTES_MAX = 8 << 20  # the files of a request, escaped as JSON, and some room
T = TypeVar("T")
GRACEFUL_S = 5


def create_app(
    supervisor: Supervisor, token: str, shutdown: Callable[[], None], limits: HttpLimits
) -> FastAPI:
    """Return the agent's HTTP application. `shutdown` makes the server end once the answer is out."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        watch = asyncio.create_task(supervisor.run())

        def watch_ended(task: asyncio.Task[None]) -> None:
            # Without its loop the agent would hold processes without supervision: end visibly instead.
            if not task.cancelled() and task.exception() is not None:
                log.critical("the agent's loop failed", exc_info=task.exception())
                shutdown()

        watch.add_done_callback(watch_ended)
        try:
            yield
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch

    app = FastAPI(title="rtolap agent", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    guard(app, supervisor.metrics.registry, token, body_bytes_max=lambda path: BODY_BYTES_MAX, limits=limits)
    _add_routes(app, supervisor, shutdown)

    @app.exception_handler(RtolapError)
    async def failed(_request: Request, error: RtolapError) -> Response:
        return Response(
            msgspec.json.encode(error.to_dict()), error.http_status, media_type="application/json"
        )

    return app


def _add_routes(app: FastAPI, supervisor: Supervisor, shutdown: Callable[[], None]) -> None:
    @app.get("/health")
    async def health() -> Response:
        return Response(b'{"role":"agent"}', media_type="application/json")

    @app.get("/api/v1/processes")
    async def processes() -> Response:
        return _json(ProcessList(supervisor.list()))

    @app.put("/api/v1/processes/{key}")
    async def ensure(key: str, request: Request) -> Response:
        return _json(await supervisor.ensure(key, await _body(request, ProcessSpec)))

    @app.get("/api/v1/processes/{key}")
    async def get(key: str) -> Response:
        return _json(supervisor.get(key))

    @app.delete("/api/v1/processes/{key}")
    async def stop(key: str, generation: int) -> Response:
        return _json(await supervisor.stop(key, generation))

    @app.post("/api/v1/processes/{key}/lease")
    async def lease(key: str, request: Request) -> Response:
        return _json(await supervisor.renew(key, (await _body(request, GenerationRef)).generation))

    @app.post("/api/v1/processes/{key}/acknowledge")
    async def acknowledge(key: str, request: Request) -> Response:
        return _json(await supervisor.acknowledge(key, (await _body(request, GenerationRef)).generation))

    @app.get("/api/v1/processes/{key}/generation")
    async def generation(key: str) -> Response:
        return _json(supervisor.last(key))

    @app.get("/api/v1/processes/{key}/log")
    async def read_log(
        key: str, bytes_max: Annotated[int, Query(alias="bytes", ge=1, le=LOG_BYTES_MAX)] = 65_536
    ) -> Response:
        return Response(supervisor.log(key, bytes_max), media_type="text/plain; charset=utf-8")

    @app.post("/api/v1/shutdown")
    async def shut_down(request: Request) -> Response:
        if (await _body(request, Shutdown)).stop_processes:
            await supervisor.stop_all()
        shutdown()
        return Response(b"{}", media_type="application/json")


def _json(message: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(message), media_type="application/json")


async def _body(request: Request, kind: type[T]) -> T:
    try:
        return decode_json(await request.body() or b"{}", kind)
    except UNDECODABLE as error:
        raise DefinitionError(f"request body is not a {kind.__name__}", found=str(error)) from error


async def serve(
    *,
    folder: Path,
    commands: Commands,
    host: str,
    port: int,
    token: str,
    limits: HttpLimits,
    stop_on_exit: bool = False,
    cpus: Mapping[str, frozenset[int]] | None = None,
) -> None:
    """Serve until asked to end. With `stop_on_exit` the processes end with the agent; else they live on.

    On the way out: 1. requests under way are answered (at most `GRACEFUL_S`), 2. the processes are stopped,
    if so wanted, 3. the folder is let go. An agent that is killed instead leaves its processes to the next.

    Raises Refused when another agent holds the folder.
    """
    supervisor = Supervisor(folder, commands, cpus=cpus)
    try:
        server: HttpServer

        def shutdown() -> None:
            server.should_exit = True

        app = create_app(supervisor, token, shutdown, limits)
        connections = HttpConnections(supervisor.metrics.registry, limits)
        server = HttpServer(app, connections, host=host, port=port, graceful_s=GRACEFUL_S)
        await server.serve()
        if stop_on_exit:
            log.info("stopping all processes")
            await supervisor.stop_all()
    finally:
        supervisor.close()
        log.info("agent ended")


def run(serving: Coroutine[Any, Any, None]) -> None:
    """Run `serve` as a process: call it from the main thread."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _served)
    asyncio.run(serving)


def _served(number: int, frame: FrameType | None) -> None:
    """Ignore a signal that has been handled. uvicorn handles signals while it serves and raises them once
    more afterwards, when the process is already ending.

    Left at its default, that second SIGTERM would end the agent before it has stopped its processes.
    """
