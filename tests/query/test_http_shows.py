"""SHOW and DESCRIBE over HTTP, as `rtolap sql` asks them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from rtolap.base.errors import UnknownTable
from rtolap.base.users import Users
from rtolap.query.http.server import make_app
from rtolap.query.statement_service import QueryService
from rtolap.servers.limits import HttpLimits

TOKEN = "a token"


@pytest.fixture(scope="module")
def client(service: QueryService) -> Iterator[TestClient]:
    with TestClient(make_app(service, Users({}), TOKEN, HttpLimits())) as opened:
        yield opened


def ask(client: TestClient, sql: str) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    answer: dict[str, Any] = client.post("/api/v1/query", json={"sql": sql}, headers=headers).json()
    return answer


def test_tables_and_columns_are_shown_as_to_mysql_clients(client: TestClient) -> None:
    assert ask(client, "SHOW TABLES LIKE 'fl%';")["rows"] == [["flights"]]
    described, shown = ask(client, "DESCRIBE flights"), ask(client, "-- which\nSHOW COLUMNS FROM flights")
    assert [column["name"] for column in described["columns"]][:2] == ["Field", "Type"]
    assert described == shown
    assert described["rows"]


def test_what_is_wrong_is_said(client: TestClient) -> None:
    assert ask(client, "DESCRIBE nothing_here")["code"] == UnknownTable.code
    assert "unsupported SHOW" in ask(client, "SHOW NONSENSE")["message"]


@pytest.mark.parametrize("sql", ["SELECT COUNT(*) AS n FROM flights", "EXPLAIN SELECT COUNT(*) FROM flights"])
def test_queries_are_answered_as_before(client: TestClient, sql: str) -> None:
    assert len(ask(client, sql)["rows"]) >= 1
