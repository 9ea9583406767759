"""A proxy that answers each request itself, and keeps what it was asked for."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

VARIABLES = tuple(
    name
    for scheme in ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")
    for name in (scheme, scheme.upper())
)


class RecordingProxy(ThreadingHTTPServer):
    """`asked` are the URLs of requests, and host:port of tunnels, which are refused."""

    def __init__(self, answer: Callable[[str], bytes | None]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: RecordingProxy

    def do_GET(self) -> None:
        self._answer(self.server.answer(self.path))

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self._answer(None)

    def do_CONNECT(self) -> None:
        self._answer(None)

    def _answer(self, body: bytes | None) -> None:
        self.server.asked.append(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        if body and self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


@contextlib.contextmanager
def recording_proxy(answer: Callable[[str], bytes | None] = lambda url: None) -> Iterator[RecordingProxy]:
    """Serve one. `answer` gives the body for a URL; None: there is nothing."""
    with RecordingProxy(answer) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()
