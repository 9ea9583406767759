"""What only reads passes a front end by that accepts a request and says nothing."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from rtolap.protocols.stored_tables.client import StoredTablesClient

CHANGE_S = 120.0  # what a change may take


class Answering(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"[]")

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def answering() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_endpoint_that_stands_still_is_passed_by(answering: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        urls = (f"http://127.0.0.1:{silent.getsockname()[1]}", answering)
        with StoredTablesClient(urls, "token", timeout_s=CHANGE_S, read_timeout_s=0.2) as client:
            began_s = time.monotonic()
            assert client.tables() == ()
            assert client.tables() == ()
            assert time.monotonic() - began_s < CHANGE_S / 2
