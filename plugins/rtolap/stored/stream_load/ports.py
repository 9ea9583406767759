"""The ports of an application with loads: TLS, whether bodies are taken there, and how large others are."""

from __future__ import annotations

import ssl

from fastapi import FastAPI, Request, Response
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from rtolap.base.errors import DefinitionError, RtolapError
from rtolap.base.metrics import Metrics
from rtolap.base.settings import Settings
from rtolap.servers import http_guard
from rtolap.servers.limits import HttpLimits
from rtolap.servers.tls import load_context
from rtolap.stored.stream_load.authentication import Guard
from rtolap.stored.stream_load.load_routes import TAKES_BODIES
from rtolap.stored.stream_load.responses import error_response

BODY_BYTES_MAX = 4 << 20  # of all but loads


def body_bytes_max(path: str) -> int | None:
    """Return the bound of a request's body. Bodies of loads have none: they are read as they are worked
    on."""
    return None if path.rstrip("/").endswith("/_stream_load") else BODY_BYTES_MAX


def guard_app(
    app: FastAPI, guard: Guard, metrics: Metrics, limits: HttpLimits, open_paths: tuple[str, ...]
) -> None:
    """Let in users and who has the cluster's token, at `open_paths` everybody; errors are answered."""

    @app.exception_handler(RtolapError)
    async def failed(request: Request, error: RtolapError) -> Response:
        return error_response(request, error)

    http_guard.guard(
        app,
        metrics,
        guard.cluster_token,
        users=guard.users,
        open_paths=open_paths,
        body_bytes_max=body_bytes_max,
        answer=error_response,
        limits=limits,
    )


class Port:
    """The application behind one port; it learns which port a request came in on.

    The servers of several ports may run on threads of their own. Starlette assembles an application at its
    first request, which is no work for two threads at once: it is done here.
    """

    def __init__(self, app: Starlette, *, takes_bodies: bool) -> None:
        if app.middleware_stack is None:
            app.middleware_stack = app.build_middleware_stack()
        self._app = app
        self._takes_bodies = takes_bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, TAKES_BODIES: self._takes_bodies}, receive, send)


def tls_of_loads(settings: Settings) -> ssl.SSLContext | None:
    """Return the TLS of ports that take loads; None where they speak plain HTTP. Raises DefinitionError."""
    certificate, key = settings.stream_load_tls_certificate, settings.stream_load_tls_key
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        missing = "RTOLAP_STREAM_LOAD_TLS_" + ("KEY" if key is None else "CERTIFICATE")
        raise DefinitionError("TLS needs a certificate and its key", action=f"set {missing}")
    return load_context(certificate, key)
