"""A client that asks at regular times does not meet the end of its connection."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
from fastapi import FastAPI
from rtolap.base.metrics import Metrics
from rtolap.protocols.rest.clients import service_client
from rtolap.servers.http_guard import guard
from rtolap.servers.http_server import HttpConnections, HttpServer
from rtolap.servers.limits import HttpLimits

from tests.support.waiting import until

TOKEN = "a token"
# Sensors and triggers ask every five seconds. That is also uvicorn's own limit: requests came as it closed.
REST_S = 5.0
CLIENTS = 50


@pytest.fixture
def serve() -> Iterator[Callable[[HttpLimits], str]]:
    """Start a server with these limits; its URL."""
    with contextlib.ExitStack() as closing:

        def start(limits: HttpLimits) -> str:
            app, metrics = FastAPI(), Metrics("receiver")

            @app.get("/asked")
            def asked() -> str:
                return "here"

            guard(app, metrics, TOKEN, limits=limits)
            listening = closing.enter_context(socket.create_server(("127.0.0.1", 0)))
            server = HttpServer(app, HttpConnections(metrics, limits), lifespan="off")
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
            thread.start()
            closing.callback(thread.join, 30)
            closing.callback(setattr, server, "should_exit", True)
            until(lambda: server.started, "the server listens")
            return f"http://127.0.0.1:{listening.getsockname()[1]}/asked"

        yield start


def test_requests_on_connections_that_have_rested_are_answered(
    serve: Callable[[HttpLimits], str],
) -> None:
    url = serve(HttpLimits())
    with contextlib.ExitStack() as closing:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        clients = [closing.enter_context(service_client(headers=headers, timeout=60)) for _ in range(CLIENTS)]
        ports: list[set[int]] = []
        for rest_s in (0.0, REST_S):
            time.sleep(rest_s)
            used = set()
            for client in clients:
                answer = client.get(url)
                assert answer.json() == "here"
                used.add(answer.extensions["network_stream"].get_extra_info("client_addr")[1])
            ports.append(used)
    assert ports[0] == ports[1], "no connection was made anew"


def test_a_connection_that_rests_for_longer_than_is_allowed_ends(serve: Callable[[HttpLimits], str]) -> None:
    host, port = urlsplit(serve(HttpLimits(idle_s=1))).netloc.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        head = f"GET /asked HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        connection.sendall(head.encode())
        received = b""
        while part := connection.recv(1 << 16):
            received += part
    assert received.startswith(b"HTTP/1.1 200")
    assert received.endswith(b'"here"')
