"""The application behind a front end's two ports: all routes, errors as answers, metrics.

Both ports have every route. They differ in one thing: only on the second are bodies of loads taken; the first
sends them to one of these ports (`stream_load.load_routes`).
"""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse

from rtolap.base.errors import NotLeader
from rtolap.base.metrics import Metrics
from rtolap.servers.limits import HttpLimits
from rtolap.stored.frontend.election import Election
from rtolap.stored.stream_load.authentication import Guard
from rtolap.stored.stream_load.ports import guard_app
from rtolap.stored.stream_load.responses import location

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

    guard_app(app, guard, metrics, limits, OPEN_PATHS)
    return app
