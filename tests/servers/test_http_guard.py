"""Tests of what an HTTP endpoint takes in before it knows who asks, and how long anybody may keep it
waiting."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse
from rtolap.base.metrics import Metrics
from rtolap.base.users import Users, password_hash
from rtolap.servers.http_guard import caller_of, guard
from rtolap.servers.http_server import HttpConnections, HttpServer
from rtolap.servers.limits import HttpLimits

from tests.support import http_calls
from tests.support.hostile.exhausted_listener import ExhaustedListener
from tests.support.hostile.unhandled import unhandled_errors
from tests.support.scrape import Scrape
from tests.support.waiting import patience_s, until

TOKEN, USER, PASSWORD = "a token", "ann", "s3cret"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
BODY_MAX = 200_000
DEADLINE_S = 60.0
HEAD_BYTES, PIECES_BYTES = 100_000_000, 1 << 20  # of a head that does not end


class Endpoint:
    """A guarded application on a real socket."""

    def __init__(self, limits: HttpLimits, listening: socket.socket) -> None:
        self.metrics = Metrics("receiver")
        self.taken_bytes = 0
        self.waiting = 0
        self.go_on = threading.Event()
        self.limits = limits
        self.port: int = listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.server = HttpServer(self._app(), HttpConnections(self.metrics, limits), lifespan="off")
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listening]}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.go_on.set()
        self.server.should_exit = True
        self.server.force_exit = True
        self._thread.join(DEADLINE_S)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_S)

    def ended(self, reason: str) -> float:
        return Scrape(self.metrics.render()[0].decode())(
            "rtolap_receiver_http_connections_ended_total", reason=reason
        )

    def _app(self) -> FastAPI:
        app = FastAPI()

        @app.get("/health")
        def health() -> str:
            return "ok"

        @app.get("/who")
        def who(request: Request) -> str:
            return caller_of(request).user

        @app.get("/address")
        def address(request: Request) -> str:
            return request.client.host if request.client is not None else ""

        @app.post("/bytes")
        async def take(request: Request) -> int:
            size = 0
            async for chunk in request.stream():
                size += len(chunk)
                self.taken_bytes += len(chunk)
            return size

        @app.post("/json")
        def parsed(body: dict[str, Any]) -> int:
            return len(body)

        @app.get("/endless")
        def endless() -> Response:
            def pieces() -> Iterator[bytes]:
                self.waiting += 1
                try:
                    while True:
                        yield bytes(1 << 20)
                finally:
                    self.waiting -= 1

            return StreamingResponse(pieces())

        @app.get("/wait")
        def wait() -> str:
            self.waiting += 1
            self.go_on.wait(DEADLINE_S)
            return "done"

        users = Users({USER: bytes.fromhex(password_hash(PASSWORD))})
        guard(app, self.metrics, TOKEN, users=users, body_bytes_max=lambda path: BODY_MAX, limits=self.limits)
        return app


@contextlib.contextmanager
def opened(listening: socket.socket | None = None, **limits: Any) -> Iterator[Endpoint]:
    listening = listening or socket.create_server(("127.0.0.1", 0))
    endpoint = Endpoint(HttpLimits(**limits), listening)
    try:
        eventually(lambda: endpoint.server.started, "it serves")
        yield endpoint
    finally:
        endpoint.close()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    with opened() as made:
        yield made


def eventually(holds: Callable[[], object], what: str) -> None:
    until(holds, what, timeout_s=DEADLINE_S)


def head(path: str, *lines: str, method: str = "POST") -> bytes:
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: x", *lines, "", "")).encode()


def to_the_end(connection: socket.socket) -> bytes:
    """Return all that comes until the server ends the connection, orderly or not."""
    taken = b""
    with contextlib.suppress(ConnectionError):
        while more := connection.recv(1 << 16):
            taken += more
    return taken


def sent(connection: socket.socket, size: int) -> int:
    """Return how much of a body of so many bytes goes out before the server ends the connection."""
    out = 0
    with contextlib.suppress(ConnectionError):
        while out < size:
            out += connection.send(bytes(1 << 20))
    return out


@pytest.mark.parametrize("framing", ["Content-Length: 400000000", "Transfer-Encoding: chunked"])
def test_without_credentials_the_answer_comes_before_the_body(endpoint: Endpoint, framing: str) -> None:
    with endpoint.connect() as connection:
        connection.sendall(head("/bytes", framing))
        assert connection.recv(65536).startswith(b"HTTP/1.1 401 ")
        assert endpoint.taken_bytes == 0


def test_without_credentials_a_body_is_not_read_to_its_end(endpoint: Endpoint) -> None:
    with endpoint.connect() as connection:
        connection.sendall(head("/bytes", "Content-Length: 400000000"))
        assert sent(connection, 400_000_000) < 100_000_000
        assert endpoint.taken_bytes == 0


def test_a_small_body_without_credentials_still_hears_why(endpoint: Endpoint) -> None:
    for _ in range(20):
        answer = http_calls.post(f"{endpoint.url}/bytes", content=bytes(300_000))
        assert answer.status_code == 401
        assert answer.json()["code"] == "unauthorized"


def test_a_body_announced_as_too_large_is_refused_before_it_is_read(endpoint: Endpoint) -> None:
    with endpoint.connect() as connection:
        connection.sendall(
            head("/bytes", f"Content-Length: {BODY_MAX + 1}", f"Authorization: Bearer {TOKEN}")
        )
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")
    assert endpoint.taken_bytes == 0
    whole = http_calls.post(f"{endpoint.url}/bytes", content=bytes(BODY_MAX), headers=BEARER)
    assert whole.json() == BODY_MAX


@pytest.mark.parametrize("path", ["/bytes", "/json"])
def test_a_body_in_chunks_is_cut_off_at_the_limit(endpoint: Endpoint, path: str) -> None:
    """Whatever the route makes of a body that breaks off."""
    with endpoint.connect() as connection:
        lines = (
            "Transfer-Encoding: chunked",
            f"Authorization: Bearer {TOKEN}",
            "Content-Type: application/json",
        )
        connection.sendall(head(path, *lines))
        for _ in range(5):
            connection.sendall(b"c350\r\n" + b"[" * 50_000 + b"\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 413 ")


def test_only_open_paths_want_no_credentials(endpoint: Endpoint) -> None:
    with http_calls.Client(base_url=endpoint.url) as client:
        assert client.get("/health").status_code == 200
        for path in ("/who", "/metrics", "/docs", "/nowhere", "/health/"):
            assert client.get(path).status_code == 401, path
        assert client.get("/who", auth=(USER, PASSWORD)).json() == USER
        assert client.get("/who", headers=BEARER).json() == ""
        assert client.get("/nowhere", headers=BEARER).status_code == 404


CHUNKED = head("/bytes", "Transfer-Encoding: chunked", f"Authorization: Bearer {TOKEN}")


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (b"GET /health HTTP/1.1\r\nHost: x\r\nA: ", b"a"),
        (b"GET /health HTTP/1.1\r\n", b"A1234567: a\r\n"),
        (b"GET /", b"a"),
        (b"", b"\r\n"),
        (head("/bytes", "Transfer-Encoding: chunked", f"Authorization: Bearer {TOKEN}") + b"1;", b"x"),
        (
            head("/bytes", "Transfer-Encoding: chunked", f"Authorization: Bearer {TOKEN}")
            + b"1\r\nx\r\n0\r\n",
            b"A: aaaaaaaaaaaaaa\r\n",
        ),
    ],
    ids=["value", "headers", "path", "nothing", "extension", "trailers"],
)
def test_a_head_is_bounded(endpoint: Endpoint, begin: bytes, piece: bytes) -> None:
    pieces = memoryview(piece * (PIECES_BYTES // len(piece)))
    out = 0
    with endpoint.connect() as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(begin)
            for _ in range(HEAD_BYTES // PIECES_BYTES):
                connection.sendall(pieces)
                out += len(pieces)
        answer = to_the_end(connection)
    assert out < HEAD_BYTES / 2
    assert not answer or b" 431 " in answer.splitlines()[0]


def test_a_head_that_comes_at_once_is_bounded_to_the_byte() -> None:
    with opened(head_bytes_max=1000) as endpoint:
        for size, status in ((500, 200), (1500, 431)):
            answer = http_calls.get(f"{endpoint.url}/health", headers={"A": "a" * size})
            assert answer.status_code == status
        eventually(lambda: endpoint.ended("long_head") == 1, "it is counted")


@pytest.mark.parametrize("text", [b"", b"\r\n", b"GET /health HT", head("/health", method="GET")[:-2]])
def test_a_connection_whose_head_does_not_come_is_ended(text: bytes) -> None:
    with opened(head_timeout_s=0.3) as endpoint, endpoint.connect() as connection:
        connection.sendall(text)
        assert to_the_end(connection).startswith(b"HTTP/1.1 408 ")
        eventually(lambda: endpoint.ended("slow_head") == 1, "it is counted")


def test_a_head_that_comes_a_byte_at_a_time_gains_nothing() -> None:
    with opened(head_timeout_s=0.5) as endpoint, endpoint.connect() as connection:
        until_s = time.monotonic() + patience_s(DEADLINE_S)
        with contextlib.suppress(ConnectionError):
            for byte in b"GET /" + b"a" * 10_000:
                connection.sendall(bytes((byte,)))
                connection.settimeout(0.02)
                with contextlib.suppress(TimeoutError):
                    if connection.recv(100):
                        break
                assert time.monotonic() < until_s
        eventually(lambda: endpoint.ended("slow_head") == 1, "it is counted")


def head_times_out(endpoint: Endpoint) -> None:
    """Return when the time for a head, counted from now, is over by the server's own clock."""
    with endpoint.connect() as silent:
        assert to_the_end(silent).startswith(b"HTTP/1.1 408 ")


def test_a_connection_that_stays_open_between_requests_has_the_time_for_its_next_head() -> None:
    with (
        opened(head_timeout_s=0.8) as endpoint,
        closing(HTTPConnection("127.0.0.1", endpoint.port)) as client,
    ):
        for _ in range(2):
            client.request("GET", "/health")
            used = client.sock
            assert client.getresponse().read()
            assert client.sock is used is not None, "it stays open"
            head_times_out(endpoint)
        assert endpoint.ended("slow_head") == 2, "of the silent ones alone"


def test_a_request_that_takes_longer_than_a_head_may_is_not_cut_off() -> None:
    with (
        opened(head_timeout_s=0.5) as endpoint,
        http_calls.Client(base_url=endpoint.url, timeout=DEADLINE_S) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        answer = pool.submit(client.get, "/wait", headers=BEARER)
        eventually(lambda: endpoint.waiting, "it is worked on")
        head_times_out(endpoint)
        endpoint.go_on.set()
        assert answer.result().json() == "done"


def test_a_body_that_hardly_comes_is_cut_off() -> None:
    with opened(body_grace_s=0.3) as endpoint, endpoint.connect() as connection:
        connection.sendall(head("/bytes", "Content-Length: 10", f"Authorization: Bearer {TOKEN}") + b"1")
        assert connection.recv(65536).startswith(b"HTTP/1.1 408 ")


def test_a_body_that_nobody_reads_is_thrown_away_for_a_while_only() -> None:
    with opened(linger_s=0.4) as endpoint, endpoint.connect() as connection:
        lines = ("Content-Length: 100000", f"Authorization: Bearer {TOKEN}")
        connection.sendall(head("/nowhere", *lines))
        assert to_the_end(connection).startswith(b"HTTP/1.1 404 ")
        eventually(lambda: endpoint.ended("long_body") == 1, "it is counted")


def test_who_does_not_read_the_answer_is_cut_off() -> None:
    with opened(write_timeout_s=0.3) as endpoint, endpoint.connect() as connection:
        connection.sendall(head("/endless", f"Authorization: Bearer {TOKEN}", method="GET"))
        eventually(lambda: endpoint.ended("slow_reader") == 1, "it is cut off")
        to_the_end(connection)


def test_a_request_that_runs_hears_that_its_connection_was_ended_for_what_came_behind() -> None:
    with opened() as endpoint, unhandled_errors() as unhandled:
        with endpoint.connect() as connection:
            one = head("/wait", f"Authorization: Bearer {TOKEN}", method="GET")
            connection.sendall(one + one + b"no request\r\n\r\n")
            assert to_the_end(connection).startswith(b"HTTP/1.1 400 ")
        eventually(lambda: endpoint.waiting == 1, "the first is at work")
        eventually(lambda: not len(endpoint.server._connections.open), "the connection is gone")
        endpoint.go_on.set()
        eventually(lambda: not endpoint.server.server_state.tasks, "its request is over")
        assert endpoint.waiting == 1, "the second was begun for nobody"
    assert not unhandled, unhandled[0]


@pytest.mark.parametrize("body", [b'{"a": \xb2', b"[1e999]", b'"\\ud800"', b"[" * 50_000])
def test_what_is_no_body_of_a_route_is_answered_without_its_bytes(endpoint: Endpoint, body: bytes) -> None:
    for kind in ("application/json", "text/plain"):
        headers = {**BEARER, "Content-Type": kind}
        answer = http_calls.post(f"{endpoint.url}/json", content=body, headers=headers)
        assert answer.status_code in (400, 422), answer.text
        assert len(answer.content) < 500


def test_who_goes_away_in_the_middle_of_a_body_leaves_no_traceback() -> None:
    with opened() as endpoint, unhandled_errors() as unhandled:
        with endpoint.connect() as connection:
            connection.sendall(
                head("/bytes", "Content-Length: 10", f"Authorization: Bearer {TOKEN}") + b"12345"
            )
            eventually(lambda: endpoint.taken_bytes == 5, "it is read")
        eventually(lambda: not endpoint.server.server_state.tasks, "its request is over")
    assert not unhandled, unhandled[0]


def test_a_slow_reader_gets_its_answer() -> None:
    with opened(write_timeout_s=1.2) as endpoint, endpoint.connect() as reader, endpoint.connect() as stuck:
        request = head("/endless", f"Authorization: Bearer {TOKEN}", method="GET")
        stuck.sendall(request)
        eventually(lambda: endpoint.waiting == 1, "it is answered")
        reader.sendall(request)

        def other_is_cut_off() -> bool:
            assert reader.recv(1 << 20)
            return endpoint.ended("slow_reader") == 1

        eventually(other_is_cut_off, "who takes nothing is cut off")
        assert reader.recv(1 << 20)


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "X-Real-IP"])
def test_no_header_chooses_the_address_that_wrong_passwords_count_for(
    header: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    sent = {header: "203.0.113.7", "Authorization": f"Bearer {TOKEN}"}
    with opened() as endpoint:
        assert http_calls.get(f"{endpoint.url}/address", headers=sent).json() == "127.0.0.1"


def test_silent_connections_give_way_to_one_that_asks() -> None:
    with opened(connections_per_address_max=20) as endpoint, contextlib.ExitStack() as open_ones:
        silent = [open_ones.enter_context(endpoint.connect()) for _ in range(60)]
        assert http_calls.get(f"{endpoint.url}/health").status_code == 200
        assert len(endpoint.server._connections.open) <= 20
        assert to_the_end(silent[0]) == b""  # the one that was silent for longest


def test_a_connection_more_than_may_be_at_work_is_refused() -> None:
    with opened(connections_per_address_max=2) as endpoint, contextlib.ExitStack() as open_ones:
        for _ in range(2):
            open_ones.enter_context(endpoint.connect()).sendall(
                head("/wait", f"Authorization: Bearer {TOKEN}", method="GET")
            )
        eventually(lambda: endpoint.waiting == 2, "both are at work")
        with endpoint.connect() as third:
            assert to_the_end(third).startswith(b"HTTP/1.1 503 ")
        eventually(lambda: endpoint.ended("refused") == 1, "it is counted")
        endpoint.go_on.set()


def test_one_caller_has_not_all_turns() -> None:
    with opened(requests_per_user_max=2, requests_max=3) as endpoint, contextlib.ExitStack() as open_ones:
        for _ in range(2):
            open_ones.enter_context(endpoint.connect()).sendall(
                head("/wait", f"Authorization: Bearer {TOKEN}", method="GET")
            )
        eventually(lambda: endpoint.waiting == 2, "both are at work")
        refused = http_calls.get(f"{endpoint.url}/who", headers=BEARER)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert "at most 2 of one user" in refused.json()["message"]
        assert http_calls.get(f"{endpoint.url}/who", auth=(USER, PASSWORD)).status_code == 200
        endpoint.go_on.set()


def test_accepting_goes_on_when_there_are_descriptors_again(caplog: pytest.LogCaptureFixture) -> None:
    listening = ExhaustedListener()
    listening.bind(("127.0.0.1", 0))
    with caplog.at_level(logging.WARNING), opened(listening) as endpoint:
        assert http_calls.get(f"{endpoint.url}/health", timeout=DEADLINE_S).status_code == 200
        assert endpoint.ended("no_descriptors") == 3
    assert "Too many open files" in caplog.text


def test_wrong_passwords_are_slowed_for_their_user_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rtolap.base.users.FIRST_DELAY_S", 0.1)
    with opened() as endpoint, http_calls.Client(base_url=endpoint.url, timeout=DEADLINE_S) as client:
        for _ in range(3):
            assert client.get("/who", auth=(USER, "wrong")).status_code == 401
        began_s = time.monotonic()
        assert client.get("/who", auth=(USER, "wrong")).status_code == 401
        assert client.get("/who", auth=(USER, PASSWORD)).status_code == 200
        assert time.monotonic() - began_s >= 0.1 + 0.2
