"""Requests over HTTP to an address that was read in ZooKeeper: heartbeats and reports to coordinators."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from fastapi import FastAPI, Request, Response
from rtolap.base.errors import NotFound, RtolapError, Unavailable
from rtolap.base.metrics import Metrics
from rtolap.base.mutual_proof import ServerSessions
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.servers.http_guard import caller_of, guard, json_answer
from rtolap.servers.http_server import HttpConnections, HttpServer
from rtolap.servers.limits import HttpLimits
from rtolap.stack.ports import free_port
from rtolap.watermark_client.client import WatermarkClient

from tests.support.hostile.impostors import Between, HttpPretender
from tests.support.waiting import until

TOKEN = "the-secret-of-this-cluster"


class Coordinator:
    """As much of one as its guard sees."""

    def __init__(self, port: int = 0) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.asked: list[str] = []
        app = FastAPI()

        @app.get("/api/v1/cubes/{name}/watermark")
        def watermark(name: str, request: Request) -> None:
            self.asked.append(name + caller_of(request).user)
            raise NotFound(f"no cube {name}")

        metrics = Metrics("receiver")
        guard(
            app, metrics, TOKEN, limits=HttpLimits(), sessions=ServerSessions(TOKEN, f"127.0.0.1:{self.port}")
        )

        @app.exception_handler(RtolapError)
        def failed(request: Request, error: RtolapError) -> Response:
            return json_answer(request, error)

        self._server = HttpServer(
            app, HttpConnections(metrics, HttpLimits()), host="127.0.0.1", port=self.port, graceful_s=1
        )
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        until(lambda: self._server.started, "the server listens")

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(30)


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    one = Coordinator()
    yield one
    one.close()


def found(*urls: str, token: str = TOKEN) -> CoordinatorClient:
    return CoordinatorClient(urls, token, learnt=True, retry_s=0)


def ask(client: CoordinatorClient) -> str:
    with pytest.raises(RtolapError) as caught:
        client.watermark("c")
    assert TOKEN not in str(caught.value)
    return f"{type(caught.value).__name__}: {caught.value}"


def test_a_coordinator_that_was_found_gets_proof_and_no_token(coordinator: Coordinator) -> None:
    with (
        Between(coordinator.port) as between,
        CoordinatorClient([coordinator.url], TOKEN, learnt=True) as client,
    ):
        assert "NotFound" in ask(client)
        assert coordinator.asked == ["c"]
        with CoordinatorClient(
            [f"http://127.0.0.1:{between.port}"], TOKEN, learnt=True, retry_s=0
        ) as betrayed:
            assert "Unavailable" in ask(betrayed)
        assert b"Rtolap-Hello" in between.sent
        assert TOKEN.encode() not in between.sent
        assert b"Rtolap-Call" not in between.sent
        assert coordinator.asked == ["c"]


def test_an_impostor_is_passed_by_and_learns_nothing(coordinator: Coordinator) -> None:
    with HttpPretender() as pretender:
        urls = [f"http://127.0.0.1:{pretender.port}", coordinator.url]
        with found(*urls) as client:
            assert "NotFound" in ask(client)
        with found(urls[0]) as client:
            said = ask(client)
            assert str(pretender.port) in said
            assert "does not prove" in said
        assert pretender.seen
        assert TOKEN not in str(pretender.seen)


def test_reports_go_to_no_impostor() -> None:
    with HttpPretender() as pretender:
        client = WatermarkClient(
            [f"http://127.0.0.1:{pretender.port}"], TOKEN, "app", learnt=True, every_s=0.05
        )
        until(lambda: bool(pretender.seen) and client.problem is not None, "it is asked and refused")
        client.close(timeout_s=0)
        assert "does not prove" in (client.problem or "")
        assert TOKEN not in str(pretender.seen)
        assert all("Rtolap-Hello" in request for request in pretender.seen), "no report is sent either"


def test_a_session_is_opened_once_and_again_after_a_restart(coordinator: Coordinator) -> None:
    with found(coordinator.url) as client:
        for _ in range(20):
            assert "NotFound" in ask(client)
        coordinator.close()
        assert "Unavailable" in ask(client)
        again = Coordinator(coordinator.port)
        try:
            assert "NotFound" in ask(client)
            assert again.asked == ["c"]
        finally:
            again.close()


def test_who_takes_a_coordinators_place_is_refused(coordinator: Coordinator) -> None:
    with found(coordinator.url) as client:
        assert "NotFound" in ask(client)
        coordinator.close()
        with HttpPretender(coordinator.port) as pretender:
            said = ask(client)
            assert "does not prove" in said
            assert TOKEN not in str(pretender.seen)


def test_a_configured_address_takes_the_token_as_before(coordinator: Coordinator) -> None:
    with CoordinatorClient([coordinator.url], TOKEN) as client:
        assert "NotFound" in ask(client)
    with (
        CoordinatorClient([coordinator.url], "another", learnt=True, retry_s=0) as client,
        pytest.raises(Unavailable),
    ):
        client.watermark("c")
