"""Whatever is sent to the query service over HTTP costs little; everybody else is answered."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.support import http_calls
from tests.support.hostile.hostile_http import HostileHttp, basic, json_body
from tests.support.query.query_endpoints import OTHER_USER, PASSWORD, TOKEN, USER, Endpoints, open_endpoints
from tests.support.query.query_world import QueryWorld
from tests.support.seeds import so_many

REQUESTS = 30
CPU_S_MAX = 5.0  # of one connection


@pytest.fixture(scope="module")
def endpoints(world: QueryWorld) -> Iterator[Endpoints]:
    with open_endpoints(world) as opened:
        yield opened


@pytest.mark.seeded
@pytest.mark.parametrize(
    ("credentials", "body_share", "least"),
    [
        pytest.param(None, 0.02, so_many(1_200), id="nobody"),
        pytest.param(basic(USER, PASSWORD), 0.15, so_many(500), id="a-user"),
        pytest.param(b"Bearer " + TOKEN.encode(), 0.15, so_many(500), id="the-token"),
    ],
)
def test_no_request_costs_more_than_a_little(
    endpoints: Endpoints, credentials: bytes | None, body_share: float, least: int
) -> None:
    rng = random.Random(21)
    hostile = HostileHttp(
        "127.0.0.1", endpoints.http_port, (b"POST /api/v1/query",), json_body("flights"), body_share
    )
    hostile.ask_until(rng, credentials, REQUESTS, answers=least, cpu_s_max=CPU_S_MAX)
    with http_calls.Client(base_url=endpoints.http_url, auth=(OTHER_USER, PASSWORD), timeout=60) as client:
        answer = client.post("/api/v1/query", json={"sql": "select count(*) from flights"})
    assert answer.json()["rows"] == [[800]]
