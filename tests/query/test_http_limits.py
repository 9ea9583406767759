"""What the HTTP endpoint for SQL takes from whom, on a real socket."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest
from rtolap.protocols.query.messages import ARROW_STREAM
from rtolap.query.statement_service import QueryLimits
from rtolap.servers.limits import HttpLimits

from tests.support import http_calls
from tests.support.query.query_endpoints import PASSWORD, TOKEN, USER, Endpoints, open_endpoints
from tests.support.query.query_world import QueryWorld
from tests.support.waiting import patience_s

DEADLINE_S = 60.0
# Some 100 MB: 3 rows each.
LARGE = "select lpad(a.name, 5000, 'x') as l from airlines a, " + ", ".join(
    f"airlines t{i}" for i in range(8)
)


@pytest.fixture(scope="module")
def endpoints(world: QueryWorld) -> Iterator[Endpoints]:
    with open_endpoints(
        world, query_limits=QueryLimits(queries_max=1), http_limits=HttpLimits(write_timeout_s=0.5)
    ) as opened:
        yield opened


def connected(endpoints: Endpoints) -> socket.socket:
    return socket.create_connection(("127.0.0.1", endpoints.http_port), timeout=DEADLINE_S)


def head(*lines: str) -> bytes:
    return "\r\n".join(("POST /api/v1/query HTTP/1.1", "Host: x", *lines, "", "")).encode()


def test_a_large_body_without_credentials_is_answered_before_it_is_read(endpoints: Endpoints) -> None:
    with connected(endpoints) as connection:
        connection.sendall(head("Content-Length: 400000000", "Content-Type: application/json"))
        assert connection.recv(65536).startswith(b"HTTP/1.1 401 ")
        out = 0
        with contextlib.suppress(ConnectionError):
            while out < 400_000_000:
                out += connection.send(bytes(1 << 20))
    assert out < 100_000_000


def test_a_statement_whose_rows_nobody_reads_gives_its_turn_back(endpoints: Endpoints) -> None:
    """There is one turn."""
    with connected(endpoints) as connection:
        body = b'{"sql": "%s"}' % LARGE.encode()
        connection.sendall(
            head(
                f"Content-Length: {len(body)}",
                f"Authorization: Bearer {TOKEN}",
                f"Accept: {ARROW_STREAM}",
                "Content-Type: application/json",
            )
            + body
        )
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
        until_s = time.monotonic() + patience_s(DEADLINE_S)
        while True:
            answer = http_calls.post(
                f"{endpoints.http_url}/api/v1/query",
                json={"sql": "select 1 as one"},
                auth=(USER, PASSWORD),
                timeout=DEADLINE_S,
            )
            if answer.status_code == 200:
                break
            assert answer.json()["code"] == "unavailable"
            assert time.monotonic() < until_s, "the turn was never given back"
