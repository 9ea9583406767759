"""`rtolap query cache` against a running endpoint: a list for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from rtolap.base.users import Users
from rtolap.cli.query import app
from rtolap.protocols.query import client as query_client
from rtolap.query.history_cache.report import report
from rtolap.query.http.server import make_app
from rtolap.query.statement_service import QueryService
from rtolap.servers.limits import HttpLimits
from typer.testing import CliRunner

from tests.support.query.cache_world import CacheWorld
from tests.support.query.query_world import QueryWorld

TOKEN = "secret"


@pytest.fixture
def cached(tmp_path: Path) -> CacheWorld:
    world = CacheWorld(tmp_path, 1)
    world.publish("a", 2, [[500]])
    world.publish("b", 0, [[30_000]])
    world.settle()
    return world


@contextmanager
def talking_to(made: FastAPI, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """The command's client then talks to this application, in this process."""
    with TestClient(made) as opened:
        monkeypatch.setattr(
            query_client.httpx, "Client", lambda headers, **rest: _Authorized(opened, headers)
        )
        yield opened


@pytest.fixture
def service(world: QueryWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[QueryService]:
    (tmp_path / "token").write_text(TOKEN)
    monkeypatch.setenv("RTOLAP_TOKEN_FILE", str(tmp_path / "token"))
    with closing(world.service()) as made:
        yield made


@pytest.fixture
def endpoint(
    service: QueryService, cached: CacheWorld, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TestClient]:
    made = make_app(
        service,
        Users({}),
        TOKEN,
        HttpLimits(),
        history_cache=lambda versions_max: report(cached.keeper, versions_max),
    )
    with talking_to(made, monkeypatch) as opened:
        yield opened


class _Authorized:
    def __init__(self, client: TestClient, headers: dict[str, str]) -> None:
        self._client, self._headers = client, headers

    def get(self, url: str, timeout: float) -> object:
        return self._client.get(url, headers=self._headers)

    def close(self) -> None:
        pass


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["cache", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_each_version_stands_on_a_line(endpoint: TestClient) -> None:
    first, second, third = run().splitlines()
    assert first.split("\t")[:6] == ["cube", "segment", "version", "state", "files", "of"]
    assert second.split("\t")[:6] == ["a", "19700101020000_19700101030000", "1", "CACHED", "2", "2"]
    assert third.split("\t")[:6] == ["b", "19700101000000_19700101030000", "1", "PARTLY", "1", "2"]


def test_programs_get_all_of_it_as_json(endpoint: TestClient) -> None:
    found = json.loads(run("--json", "--versions", "1"))
    assert (found["state"], len(found["versions"])) == ("PLACED", 1)
    assert found["complete_from_ms"] == 3 * 3_600_000


def test_it_wants_credentials_and_a_bounded_number(endpoint: TestClient) -> None:
    path = "/api/v1/history-cache"
    assert endpoint.get(path).status_code == 401
    authorized = {"Authorization": f"Bearer {TOKEN}"}
    assert endpoint.get(path, params={"versions": 10_001}, headers=authorized).status_code == 422
    assert endpoint.get(path, headers=authorized).json()["bytes_max"] == 20_000


def test_a_service_without_a_cache_says_so(service: QueryService, monkeypatch: pytest.MonkeyPatch) -> None:
    with talking_to(make_app(service, Users({}), TOKEN, HttpLimits()), monkeypatch):
        assert "RTOLAP_HISTORY_CACHE_DIR is not set" in run().replace("\n", " ")
        assert json.loads(run("--json"))["state"] == "OFF"
