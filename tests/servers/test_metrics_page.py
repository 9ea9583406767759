"""The page of metrics behind its credentials, and the requests that endpoints count, with bounded labels."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import httpx
import pytest
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse
from fastapi.testclient import TestClient
from rtolap.base.errors import RtolapError, Unavailable
from rtolap.base.metrics import Metrics
from rtolap.servers.http_guard import guard
from rtolap.servers.limits import HttpLimits
from rtolap.servers.metrics_server import MetricsServer

from tests.support import http_calls
from tests.support.scrape import Scrape, scrape

TOKEN = "a-token"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def endpoint() -> TestClient:
    app = FastAPI()
    api = APIRouter(prefix="/api/v1")

    @api.get("/cubes/{cube}")
    def cube(cube: str) -> str:
        if cube == "broken":
            raise RuntimeError("broken")
        return cube

    app.include_router(api)

    @app.exception_handler(RtolapError)
    async def failed(request: Request, error: RtolapError) -> JSONResponse:
        return JSONResponse(error.to_dict(), error.http_status)

    guard(app, Metrics("coordinator"), TOKEN, limits=HttpLimits())
    return TestClient(app, raise_server_exceptions=False)


def test_a_endpoint_shows_metrics_to_who_has_its_credentials_only(endpoint: TestClient) -> None:
    assert endpoint.get("/metrics").status_code == 401
    answer = endpoint.get("/metrics", headers=BEARER)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    openmetrics = endpoint.get("/metrics", headers={**BEARER, "Accept": "application/openmetrics-text"})
    assert openmetrics.text.endswith("# EOF\n")


def test_requests_are_counted_by_route_and_status_not_by_path(endpoint: TestClient) -> None:
    for path in ("/api/v1/cubes/a", "/api/v1/cubes/b", "/api/v1/cubes/broken", "/no/such", "/nor/this"):
        endpoint.get(path, headers=BEARER)
    endpoint.request("BREW", "/api/v1/cubes/a", headers=BEARER)
    found = Scrape(endpoint.get("/metrics", headers=BEARER).text)
    name, route = "rtolap_coordinator_http_requests_total", "/api/v1/cubes/{cube}"
    assert found(name, method="GET", route=route, status="200") == 2
    assert found(name, method="GET", route=route, status="500") == 1
    assert found(name, method="GET", route="other", status="404") == 2
    assert found.labels(name, "method") == {"GET", "other"}
    assert found.labels(name, "route") == {route, "other"}
    assert found("rtolap_coordinator_http_requests_running") == 1  # the scrape itself
    assert found("rtolap_coordinator_http_request_seconds_count", method="GET", route=route) == 3


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    metrics = Metrics("stream_load")
    metrics.counter("load_bytes").inc(5)
    server = MetricsServer(metrics, host="127.0.0.1", port=0, token=TOKEN, limits=HttpLimits())
    yield server
    server.close()


def test_a_server_of_its_own_wants_the_token_too(server: MetricsServer) -> None:
    for headers in ({}, {"Authorization": "Bearer other"}, {"Authorization": "Bearer ä".encode()}):
        assert http_calls.get(server.url, headers=headers).status_code == 401
    assert http_calls.get(server.url + "/else", headers=BEARER).status_code == 404
    assert scrape(server.url, TOKEN)("rtolap_stream_load_load_bytes_total") == 5


def test_a_silent_client_holds_up_neither_others_nor_the_end(server: MetricsServer) -> None:
    with http_calls.Client(headers=BEARER) as silent:
        assert silent.get(server.url).status_code == 200  # and its connection stays open
        assert http_calls.get(server.url, headers=BEARER).status_code == 200
        ended = threading.Thread(target=server.close)
        ended.start()
        ended.join(5)
        assert not ended.is_alive()
        with pytest.raises(httpx.ConnectError):
            http_calls.get(server.url, headers=BEARER)


def test_the_limits_of_the_process_hold_for_its_page_of_metrics() -> None:
    limits = HttpLimits(head_timeout_s=0.2)
    server = MetricsServer(Metrics("receiver"), host="127.0.0.1", port=0, token=TOKEN, limits=limits)
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as silent:
            assert silent.recv(12) == b"HTTP/1.1 408", "a connection without a head is cut off"
    finally:
        server.close()


def test_the_url_of_a_server_at_all_addresses_can_be_called() -> None:
    server = MetricsServer(Metrics("receiver"), host="0.0.0.0", port=0, token=TOKEN, limits=HttpLimits())
    try:
        assert http_calls.get(server.url, headers=BEARER).status_code == 200
        assert "//127.0.0.1:" in server.url
    finally:
        server.close()


def test_a_taken_port_is_named(server: MetricsServer) -> None:
    with pytest.raises(Unavailable, match=str(server.port)):
        MetricsServer(
            Metrics("receiver"), host="127.0.0.1", port=server.port, token=TOKEN, limits=HttpLimits()
        )
