"""`GET /metrics` of a service without an HTTP endpoint of its own: a small server beside it, behind the
token.
"""

from __future__ import annotations

import threading

from fastapi import FastAPI

from rtolap.base.http_guard import guard
from rtolap.base.http_server import HttpConnections, HttpServer, listening_sockets
from rtolap.base.metrics import Metrics
from rtolap.base.metrics_http import PATH
from rtolap.base.server_limits import HttpLimits

BODY_BYTES_MAX = 4 << 10  # there is no route for one
GRACEFUL_S = 1
_LIMITS = HttpLimits(connections_max=100, connections_per_address_max=50, requests_max=20)


class MetricsServer:
    """Serves from its making until `close`. `port` 0 takes a free one; `url` says which.

    Raises Unavailable where the port cannot be had.
    """

    def __init__(self, metrics: Metrics, *, host: str, port: int, token: str) -> None:
        sockets = listening_sockets("metrics", host, port)
        self.port: int = sockets[0].getsockname()[1]
        self.url = f"http://{host}:{self.port}{PATH}"
        app = FastAPI(title="metrics", openapi_url=None, docs_url=None, redoc_url=None)
        guard(app, metrics, token, open_paths=(), body_bytes_max=lambda path: BODY_BYTES_MAX, limits=_LIMITS)
        self._server = HttpServer(
            app, HttpConnections(metrics, _LIMITS), lifespan="off", graceful_s=GRACEFUL_S
        )
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": sockets}, name="metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()
