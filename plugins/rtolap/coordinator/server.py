"""The server of one coordinator: connects, stands for election, serves REST, and withdraws on SIGTERM."""

from __future__ import annotations

import logging
import signal
import socket
import time
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer

from rtolap.base.addresses import host_port
from rtolap.base.clock import SystemClock
from rtolap.base.errors import NotLeader, RtolapError, Unavailable
from rtolap.base.mutual_proof import ServerSessions
from rtolap.base.settings import Settings
from rtolap.coordinator.application_routes import add_application_routes
from rtolap.coordinator.applications.host_lists import ListPlaces
from rtolap.coordinator.applications.owned import CONFIRMED_S
from rtolap.coordinator.assembly import Coordinator
from rtolap.coordinator.assignment import TopicsOf
from rtolap.coordinator.routes import add_routes
from rtolap.metadata.cluster_store import note_format, open_cluster_store, show_refused
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.protocols.coordinator import messages as wire
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.servers.http_guard import guard, json_answer
from rtolap.servers.http_server import HttpConnections, HttpServer
from rtolap.servers.limits import HttpLimits

log = logging.getLogger(__name__)

_TEMPORARY_REDIRECT = 307
_ERROR_ANSWERS: dict[int | str, dict[str, Any]] = {
    status: {"model": wire.ErrorAnswer, "description": description}
    for status, description in (
        (_TEMPORARY_REDIRECT, "the leader, or the owner of the application, is at Location"),
        (401, "missing or wrong token"),
        (404, "what is named does not exist"),
        (409, "the present state forbids it"),
        (422, "the request or the definition in it is wrong"),
        (503, "no leader or owner can be reached; `leader_url` names it if it is known"),
    )
}
# For the description only: the guard has checked it by then.
_BEARER = HTTPBearer(scheme_name="token", description="the cluster's token", auto_error=False)
_BODY_BYTES_MAX = 32 << 20  # lists of hosts are long

GRACEFUL_S = 5
OWNER_TIMEOUT_S = 2.0  # of a question to another coordinator, while a client waits for the answer


def build_app(coordinator: Coordinator, token: str, limits: HttpLimits) -> FastAPI:
    probe = PortProbe()

    def leading() -> None:
        coordinator.require_leader()

    app = FastAPI(
        title="rtolap coordinator",
        description="Cubes, segments, builds, receivers and watermarks. Instants are in ms.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    guards = [Depends(_BEARER), Depends(leading)]
    api = APIRouter(prefix=wire.API, dependencies=guards, responses=_ERROR_ANSWERS)
    add_routes(api, coordinator)
    owners = APIRouter(prefix=wire.API, dependencies=[Depends(_BEARER)], responses=_ERROR_ANSWERS)
    add_application_routes(owners, coordinator, leading)
    app.include_router(api)
    app.include_router(owners)

    guard(
        app,
        coordinator.metrics.registry,
        token,
        body_bytes_max=_body_bytes_max,
        limits=limits,
        sessions=ServerSessions(token, urlsplit(coordinator.url).netloc),
    )

    @app.get("/health")
    def health() -> wire.Health:
        return coordinator.health()

    @app.get("/openapi.json", include_in_schema=False)
    def openapi() -> dict[str, Any]:
        return app.openapi()

    @app.exception_handler(NotLeader)
    def not_leader(request: Request, error: NotLeader) -> Response:
        if error.leader_url and probe.reachable(error.leader_url):
            query = f"?{request.url.query}" if request.url.query else ""
            raw_path = request.scope.get("raw_path", request.url.path.encode()).decode("ascii")
            location = f"{error.leader_url}{raw_path.partition('?')[0]}{query}"
            return JSONResponse(error.to_dict(), _TEMPORARY_REDIRECT, headers={"Location": location})
        answer = {**error.to_dict(), "leader_url": error.leader_url}
        return JSONResponse(answer, error.http_status, headers={"Retry-After": "1"})

    @app.exception_handler(RtolapError)
    def failed(request: Request, error: RtolapError) -> Response:
        if error.http_status >= 500:
            log.warning("%s %s: %s", request.method, request.url.path, error)
        return json_answer(request, error)

    return app


def _body_bytes_max(path: str) -> int | None:
    """Return the bound of a request's body. Reports are bounded by their route, which counts those that are
    larger."""
    return None if path.endswith("/reports") else _BODY_BYTES_MAX


PROBE_S = 0.5


class PortProbe:
    """A probe of another coordinator's port, made before a request is sent there; remembered for a second."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[bool, float]] = {}  # by address, of which a cluster has a handful

    def reachable(self, url: str) -> bool:
        answer, until_s = self._last.get(url, (False, 0.0))
        if time.monotonic() < until_s:
            return answer
        parts = urlsplit(url)
        try:
            socket.create_connection((parts.hostname or "", parts.port or 80), timeout=PROBE_S).close()
            answer = True
        except OSError:
            answer = False
        self._last[url] = answer, time.monotonic() + 1.0
        return answer


def run(settings: Settings, topics: TopicsOf) -> None:
    """Serve until SIGTERM or SIGINT. `topics`: name of a Kafka cluster → its topic catalogue.

    On the way out: 1. requests under way are answered (at most `GRACEFUL_S`), 2. the candidacy is withdrawn,
    so that a standby takes over at once, 3. the session ends. A coordinator that is killed instead is
    replaced when its session times out.
    """
    token = settings.token()
    store = open_cluster_store(settings)
    try:
        note_format(store)
        coordinator = Coordinator(
            ClusterMetadata(store, SystemClock()),
            topics,
            object_store_uri=settings.object_store,
            open_client=lambda url: CoordinatorClient(
                [url], token, learnt=True, timeout_s=OWNER_TIMEOUT_S, retry_s=0
            ),
            list_places=ListPlaces.of(settings),
            url=f"http://{host_port(settings.reached_at(), settings.coordinator_port)}",
            confirmed_s=min(CONFIRMED_S, settings.session_timeout_s / 2),
            placement=settings.placement,
            lost_after_s=settings.replica_set_lost_after_s,
        )
        try:
            show_refused(coordinator.metrics.registry, store)
            limits = HttpLimits.from_settings(settings)
            server = HttpServer(
                build_app(coordinator, token, limits),
                HttpConnections(coordinator.metrics.registry, limits),
                host=settings.host,
                port=settings.coordinator_port,
                graceful_s=GRACEFUL_S,
            )
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, _served)
            server.run()
            if not server.started:
                raise Unavailable(
                    f"the coordinator cannot serve on {host_port(settings.host, settings.coordinator_port)}",
                    action="free the port, or set RTOLAP_COORDINATOR_PORT",
                )
        finally:
            coordinator.close()
    finally:
        store.close()
        log.info("coordinator ended")


def _served(number: int, frame: FrameType | None) -> None:
    """Ignore a signal that has been handled. uvicorn handles signals while it serves and raises them once
    more afterwards, when the process is already ending."""
