"""`GET /metrics` of a service without an HTTP endpoint of its own: a small server beside it, behind the
token.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from fastapi import FastAPI

from rtolap.base.addresses import callable_host, host_port
from rtolap.base.metrics import Metrics
from rtolap.base.settings import Settings
from rtolap.servers.http_guard import guard
from rtolap.servers.http_server import HttpConnections, HttpServer
from rtolap.servers.limits import HttpLimits
from rtolap.servers.listening import listening_sockets
from rtolap.servers.metrics_http import PATH

BODY_BYTES_MAX = 4 << 10  # there is no route for one
GRACEFUL_S = 1
CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX, REQUESTS_MAX = 100, 50, 20


class MetricsServer:
    """Serves from its making until `close`. `port` 0 takes a free one; `url` says which.

    `limits` are those of the process's servers; a page of metrics never needs more than the constants above.

    Raises Unavailable where the port cannot be had.
    """

    def __init__(self, metrics: Metrics, *, host: str, port: int, token: str, limits: HttpLimits) -> None:
        limits = replace(
            limits,
            connections_max=min(limits.connections_max, CONNECTIONS_MAX),
            connections_per_address_max=min(limits.connections_per_address_max, CONNECTIONS_PER_ADDRESS_MAX),
            requests_max=min(limits.requests_max, REQUESTS_MAX),
        )
        sockets = listening_sockets("metrics", host, port)
        self.port: int = sockets[0].getsockname()[1]
        self.url = f"http://{host_port(callable_host(host), self.port)}{PATH}"
        app = FastAPI(title="metrics", openapi_url=None, docs_url=None, redoc_url=None)
        guard(app, metrics, token, open_paths=(), body_bytes_max=lambda path: BODY_BYTES_MAX, limits=limits)
        self._server = HttpServer(
            app, HttpConnections(metrics, limits), lifespan="off", graceful_s=GRACEFUL_S
        )
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": sockets}, name="metrics", daemon=True
        )
        self._thread.start()

    @classmethod
    def of_settings(cls, metrics: Metrics, settings: Settings, port: int) -> MetricsServer:
        """Return a server on the host of the settings, with their token and limits."""
        limits = HttpLimits.from_settings(settings)
        return cls(metrics, host=settings.host, port=port, token=settings.token(), limits=limits)

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()
