"""`GET /metrics` of a service without an HTTP door of its own: a small server beside it, behind the token."""

from __future__ import annotations

import hmac
import logging
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rtolap.base.errors import Unavailable
from rtolap.base.metrics import Metrics
from rtolap.base.metrics_http import PATH

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S = 10.0  # a client that sends nothing does not hold its thread for longer
POLL_S = 0.1  # how soon the server notices that it is closed


class MetricsServer:
    """Serves from its making until `close`. `port` 0 takes a free one; `url` says which.

    Raises Unavailable where the port cannot be had.
    """

    def __init__(self, metrics: Metrics, *, host: str, port: int, token: str) -> None:
        try:
            self._server = _Server((host, port), metrics, token)
        except OSError as error:
            raise Unavailable(
                f"metrics cannot be served on {host}:{port}", found=error.strerror, action="take another port"
            ) from error
        self.port: int = self._server.server_address[1]
        self.url = f"http://{host}:{self.port}{PATH}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(POLL_S,), name="metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a stuck client keeps no service from ending

    def __init__(self, address: tuple[str, int], metrics: Metrics, token: str) -> None:
        self.metrics = metrics
        self.expected = f"Bearer {token}".encode()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = REQUEST_TIMEOUT_S

    def do_GET(self) -> None:
        given = self.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if self.path.partition("?")[0] != PATH:
            self._answer(404, b"only /metrics is here\n", "text/plain")
        elif not hmac.compare_digest(given, self.server.expected):
            self._answer(401, b"the bearer token is missing or wrong\n", "text/plain")
        else:
            self._answer(200, *self.server.metrics.render(self.headers.get("Accept", "")))

    def _answer(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)
