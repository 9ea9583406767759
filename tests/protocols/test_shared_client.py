"""One HTTP client that many threads share: no connection is closed under a thread that was just given it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from rtolap.protocols.rest.clients import SHARED_BY_THREADS

THREADS, REQUESTS = 40, 60


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    connections: list[object]

    def setup(self) -> None:
        super().setup()
        self.connections.append(self.client_address)

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None:
        """Not of interest."""


@pytest.fixture
def url() -> Iterator[str]:
    Answers.connections = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_connections_of_many_threads_are_kept_and_not_closed_under_them(url: str) -> None:
    with httpx.Client(timeout=30, limits=SHARED_BY_THREADS, trust_env=False) as client:

        def ask(_: int) -> list[str]:
            return [client.get(url).text for _ in range(REQUESTS)]

        with ThreadPoolExecutor(THREADS) as pool:
            answers = list(pool.map(ask, range(THREADS)))
    assert answers == [["ok"] * REQUESTS] * THREADS
    assert len(Answers.connections) <= THREADS
