"""`GET /metrics` on a service's own HTTP endpoint, and what every such endpoint counts of its requests.

rtolap_<service>_http_requests_total{method, route, status}
rtolap_<service>_http_request_seconds{method, route}      until the last byte of the answer
rtolap_<service>_http_requests_running
"""

from __future__ import annotations

import time

from fastapi import FastAPI, Request, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rtolap.base.metrics import Metrics

PATH = "/metrics"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
_OTHER = "other"  # what no route takes: labels are bounded, whatever callers send


def serve_metrics(app: FastAPI, metrics: Metrics) -> None:
    """Add the route and the counting to `app`, before it serves. Who may ask: `http_guard`."""

    @app.get(PATH, include_in_schema=False)
    def page(request: Request) -> Response:
        body, content_type = metrics.render(request.headers.get("accept", ""))
        return Response(body, headers={"Content-Type": content_type})

    app.add_middleware(_Counting, metrics=metrics)


class _Counting:
    """Around the whole application, so that refused and failed requests count too."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._requests = metrics.counter("http_requests")
        self._seconds = metrics.histogram("http_request_seconds")
        self._running = metrics.gauge("http_requests_running")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500  # what the server answers when the application raises before it has answered

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        began_s = time.perf_counter()
        self._running.inc()
        try:
            await self._app(scope, receive, noted)
        finally:
            self._running.dec()
            method = scope["method"] if scope["method"] in _METHODS else _OTHER
            route = getattr(scope.get("route"), "path", _OTHER)
            self._requests.labels(method, route, str(status)).inc()
            self._seconds.labels(method, route).observe(time.perf_counter() - began_s)
