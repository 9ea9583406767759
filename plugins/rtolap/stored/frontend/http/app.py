"""The application behind a front end's two ports: all routes, errors as answers, metrics.

Both ports have every route. They differ in one thing: only on the second are bodies of loads taken; the first
sends them there (`http.load`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from rtolap.base.errors import Forbidden, NotLeader, RtolapError, Unauthorized
from rtolap.base.metrics import Metrics
from rtolap.servers.http_guard import guard as guard_app
from rtolap.servers.limits import HttpLimits
from rtolap.stored.frontend.election import Election
from rtolap.stored.frontend.http.authentication import Guard
from rtolap.stored.frontend.http.load import TAKES_BODIES, expects, location

log = logging.getLogger(__name__)

API = "/api/v1/"
BODY_BYTES_MAX = 4 << 20  # of all but loads
# The page that says what this is, and error files, whose names are the credentials.
OPEN_PATHS = ("/", "/health", "/api/_load_error_log")


def make_app(
    public: Iterable[APIRouter],
    own: Iterable[APIRouter],
    guard: Guard,
    election: Election,
    metrics: Metrics,
    limits: HttpLimits,
) -> FastAPI:
    """Return the front end's application. `public` routers check the rights of their callers; `own` routers
    want the cluster's token, with all their paths under /api/v1. The own ones go first: their paths are
    not names of databases."""
    app = FastAPI(title="rtolap stream load", openapi_url=None, docs_url=None, redoc_url=None)
    for router in own:
        app.include_router(router, dependencies=[Depends(guard.token)])
    for router in public:
        app.include_router(router)

    @app.exception_handler(NotLeader)
    async def not_leader(request: Request, error: NotLeader) -> Response:
        try:
            master = election.master()
        except NotLeader as unknown:
            return JSONResponse(unknown.to_dict(), unknown.http_status, headers={"Retry-After": "1"})
        if master == election.here:  # it was deposed while it worked on this and does not know by whom yet
            return JSONResponse(error.to_dict(), error.http_status, headers={"Retry-After": "1"})
        return Response(status_code=307, headers={"Location": location(request, master.url)})

    def answered(request: Request, error: RtolapError) -> Response:
        if error.http_status >= 500:
            log.warning("%s %s: %s", request.method, request.url.path, error)
        headers = {}
        if isinstance(error, Unauthorized):
            own_path = request.url.path.startswith(API)
            headers = {"WWW-Authenticate": "Bearer" if own_path else 'Basic realm="rtolap"'}
        if isinstance(error, Unauthorized | Forbidden) and expects(request):
            headers["Connection"] = "close"
        return JSONResponse({**error.to_dict(), "msg": str(error)}, error.http_status, headers=headers)

    @app.exception_handler(RtolapError)
    async def failed(request: Request, error: RtolapError) -> Response:
        return answered(request, error)

    guard_app(
        app,
        metrics,
        guard.cluster_token,
        users=guard.users,
        open_paths=OPEN_PATHS,
        body_bytes_max=_body_bytes_max,
        answer=answered,
        limits=limits,
    )
    return app


def _body_bytes_max(path: str) -> int | None:
    """Return the bound of a request's body. Bodies of loads have none: they are read as they are worked
    on."""
    return None if path.rstrip("/").endswith("/_stream_load") else BODY_BYTES_MAX


class Port:
    """The application behind one of the two ports; it learns which port a request came in on."""

    def __init__(self, app: ASGIApp, *, takes_bodies: bool) -> None:
        self._app = app
        self._takes_bodies = takes_bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, TAKES_BODIES: self._takes_bodies}, receive, send)
