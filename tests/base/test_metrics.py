"""The metrics of a service: names, the page behind credentials, what endpoints count, bounded labels."""

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
from rtolap.base.http_guard import guard
from rtolap.base.metrics import Metrics
from rtolap.base.metrics_server import MetricsServer
from rtolap.base.server_limits import HttpLimits

from tests.support import http_calls
from tests.support.scrape import Scrape, scrape

TOKEN = "a-token"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


def page(metrics: Metrics) -> Scrape:
    return Scrape(metrics.render()[0].decode())


def test_names_carry_the_service_and_counters_end_in_total() -> None:
    metrics = Metrics("storage")
    metrics.counter("rows", "Rows.", ["table"]).labels("hits").inc(3)
    metrics.gauge("memory_bytes", "Memory.").set(7)
    with metrics.histogram("flush_seconds", "A flush.").time():
        pass
    found = page(metrics)
    assert found("rtolap_storage_rows_total", table="hits") == 3
    assert found("rtolap_storage_memory_bytes") == 7
    assert found("rtolap_storage_flush_seconds_count") == 1
    assert found("process_cpu_seconds_total") > 0


def test_samples_are_taken_at_each_scrape_and_not_before() -> None:
    metrics = Metrics("receiver")
    taken = []

    def sample():  # type: ignore[no-untyped-def]
        taken.append(1)
        family = metrics.counter_family("events", "Events.", ["cube"])
        family.add_metric(["flights"], 10 * len(taken))
        yield family

    metrics.sampled(sample)
    assert not taken
    seen = [page(metrics)("rtolap_receiver_events_total", cube="flights") for _ in range(2)]
    assert seen == [10, 20]


def test_two_services_in_one_process_do_not_meet() -> None:
    first, second = Metrics("query"), Metrics("query")
    first.counter("rows", "Rows.").inc()
    second.counter("rows", "Rows.")
    assert page(first)("rtolap_query_rows_total") == 1
    assert page(second)("rtolap_query_rows_total") == 0


def test_one_name_twice_is_refused() -> None:
    metrics = Metrics("query")
    metrics.counter("rows", "Rows.")
    with pytest.raises(ValueError, match="Duplicated"):
        metrics.counter("rows", "Rows.")


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
    metrics = Metrics("receiver")
    metrics.counter("rows", "Rows.").inc(5)
    server = MetricsServer(metrics, host="127.0.0.1", port=0, token=TOKEN, limits=HttpLimits())
    yield server
    server.close()


def test_a_server_of_its_own_wants_the_token_too(server: MetricsServer) -> None:
    for headers in ({}, {"Authorization": "Bearer other"}, {"Authorization": "Bearer ä".encode()}):
        assert http_calls.get(server.url, headers=headers).status_code == 401
    assert http_calls.get(server.url + "/else", headers=BEARER).status_code == 404
    assert scrape(server.url, TOKEN)("rtolap_receiver_rows_total") == 5


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


def test_a_taken_port_is_named(server: MetricsServer) -> None:
    with pytest.raises(Unavailable, match=str(server.port)):
        MetricsServer(Metrics("other"), host="127.0.0.1", port=server.port, token=TOKEN, limits=HttpLimits())
