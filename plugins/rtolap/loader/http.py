"""The loader's REST door, on loopback by default; see `wire.loader`."""

from __future__ import annotations

import hmac
from collections.abc import Callable

import msgspec
from fastapi import Depends, FastAPI, Request, Response

from rtolap.base.errors import RtolapError, Unauthorized
from rtolap.base.metrics import Metrics
from rtolap.base.metrics_http import serve_metrics
from rtolap.ledger.load_jobs import LoadJobState
from rtolap.wire.loader import API, LoaderStatus

_WANTED = {
    "pause": LoadJobState.PAUSED,
    "resume": LoadJobState.RUNNING,
    "stop": LoadJobState.STOPPED,
}


def make_app(
    job: str,
    token: str,
    metrics: Metrics,
    status: Callable[[], LoaderStatus],
    want: Callable[[LoadJobState], None],
) -> FastAPI:
    """`want` notes in the ledger what is wanted, and has the process follow it."""

    def authorized(request: Request) -> None:
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            raise Unauthorized("the loader wants a bearer token", action="send the cluster's token")

    app = FastAPI(title="rtolap loader", docs_url=None, redoc_url=None, openapi_url=None)
    serve_metrics(app, metrics, authorized)
    guarded = [Depends(authorized)]

    @app.exception_handler(RtolapError)
    async def failed(_request: Request, error: RtolapError) -> Response:
        return _json(error.to_dict(), error.http_status)

    @app.get("/health")
    def health() -> Response:
        return _json({"status": "ok", "role": "loader", "job": job})

    @app.get(API, dependencies=guarded)
    def show() -> Response:
        return _json(status())

    def changing(wanted: LoadJobState) -> Callable[[], Response]:
        def change() -> Response:
            want(wanted)
            return _json(status())

        return change

    for name, wanted in _WANTED.items():
        app.post(f"{API}/{name}", dependencies=guarded)(changing(wanted))
    return app


def _json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
