"""The port of a storage node where it takes bodies of loads, as a backend of Doris does.

The routes, the users and the work on a body are those of a front end: `stored.stream_load`. The master is
asked for all decisions, so the node needs no ledger. Other requests of Doris' clients go on to a front end,
by 307.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import FileResponse

from rtolap.base.addresses import host_port
from rtolap.base.metrics import Metrics
from rtolap.base.tls import trust
from rtolap.base.users import Users
from rtolap.protocols.rest.clients import service_client
from rtolap.protocols.rest.leader_finder import LeaderFinder
from rtolap.protocols.rest.request import headers
from rtolap.servers.http_server import HttpConnections, HttpServer
from rtolap.servers.limits import HttpLimits
from rtolap.servers.listening import listening_sockets
from rtolap.stored.stream_load.authentication import Guard
from rtolap.stored.stream_load.decision_client import DecisionClient
from rtolap.stored.stream_load.error_files import ErrorFiles
from rtolap.stored.stream_load.load_routes import LoadSettings, load_routes
from rtolap.stored.stream_load.node_directory import Clients, NodeDirectory
from rtolap.stored.stream_load.periodic_task import PeriodicTask
from rtolap.stored.stream_load.ports import Port, guard_app
from rtolap.stored.stream_load.responses import redirect
from rtolap.stored.stream_load.table_entry import TableEntry
from rtolap.stored.stream_load.writer import LoadWriter

log = logging.getLogger(__name__)

GRACEFUL_S = 5
_SWEEP_S = 60.0
OPEN_PATHS = ("/health", "/api/_load_error_log")


class LoadDoorOptions(LoadSettings, frozen=True, kw_only=True):
    """The settings by which a storage node takes bodies.

    Attributes:
        port: 0 takes a free one.
        announced_host: the host at which front ends and clients reach this process.
        users: who may load, as on the front ends.
        error_folder: of rejected rows.
    """

    port: int
    announced_host: str
    users: Users
    error_folder: Path
    tls: ssl.SSLContext | None = None


class LoadDoor:
    """Serves from its making until `close`, which answers what is under way within `GRACEFUL_S`.

    Attributes:
        url: the base URL where bodies are taken.

    Args:
        front_ends: base URLs of all front ends.
        ca: the PEM that https front ends are checked with; None means the system's.
    """

    def __init__(
        self,
        options: LoadDoorOptions,
        clients: Clients,
        *,
        host: str,
        token: str,
        front_ends: tuple[str, ...],
        ca: Path | None,
        limits: HttpLimits,
    ) -> None:
        """Raises Unavailable for a port that is taken."""
        sockets = listening_sockets("bodies of loads", host, options.port)
        scheme = "http" if options.tls is None else "https"
        self.url = f"{scheme}://{host_port(options.announced_host, sockets[0].getsockname()[1])}"
        self._http = service_client(headers=headers(token), verify=trust(ca))
        masters = LeaderFinder(front_ends)
        decisions = DecisionClient(masters, self._http, retry_s=options.election_wait_s)
        metrics = Metrics("stream_load")  # at `/metrics` of this port: names are those of a front end
        self._nodes = NodeDirectory(decisions.storage_nodes, clients)
        error_files = ErrorFiles(options.error_folder, self.url)
        guard = Guard(options.users, token)
        loads = load_routes(
            decisions, self._open_writer, error_files, lambda: self.url, guard, metrics, options
        )
        app = _app(loads, error_files, guard, metrics, limits, lambda: next(masters.attempts()))
        self._sweeping = PeriodicTask("error files", _SWEEP_S, error_files.sweep, self._broken)
        self._server = HttpServer(
            Port(app, takes_bodies=True),
            HttpConnections(metrics, limits),
            tls=options.tls,
            lifespan="off",
            graceful_s=GRACEFUL_S,
        )
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": sockets}, name="bodies of loads", daemon=True
        )
        self._sweeping.start()
        self._thread.start()

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._sweeping.stop()
        self._nodes.close()
        self._http.close()

    def _open_writer(self, txn_id: int, table: TableEntry, partial: bool) -> LoadWriter:
        return LoadWriter(self._nodes, txn_id, table.table_id, table.schema, table.replicas, partial=partial)

    @staticmethod
    def _broken(name: str) -> None:
        """Report an error of the program: bodies are taken all the same."""
        log.error("the thread for %s has ended", name)


def _app(
    loads: APIRouter,
    error_files: ErrorFiles,
    guard: Guard,
    metrics: Metrics,
    limits: HttpLimits,
    front_end: Callable[[], str],
) -> FastAPI:
    app = FastAPI(title="rtolap storage node", openapi_url=None, docs_url=None, redoc_url=None)
    app.include_router(loads)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok", "role": "storage"}

    @app.get("/api/_load_error_log")
    def error_log(file: str = "") -> Response:
        return FileResponse(error_files.path(file), media_type="text/plain; charset=utf-8")

    @app.api_route("/api/{path:path}", methods=["GET", "PUT"])
    async def elsewhere(request: Request, path: str) -> Response:
        guard.user(request)
        return redirect(request, front_end())

    guard_app(app, guard, metrics, limits, OPEN_PATHS)
    return app
