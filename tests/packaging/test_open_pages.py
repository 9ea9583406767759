"""What the HTTP doors of all services answer without credentials. Airflow: `airflow/test_plugin.py`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from rtolap.agent.commands import Commands
from rtolap.agent.host import Host
from rtolap.agent.service import create_app
from rtolap.agent.supervisor import Supervisor
from rtolap.base.metrics import Metrics
from rtolap.base.users import Users
from rtolap.loader import http as loader_http
from rtolap.query import http as query_http
from rtolap.testing.coordinator_harness import Cluster
from rtolap.testing.load_door import load_door
from starlette.routing import Route

TOKEN = "a token"
OPEN = {
    ("coordinator", "GET /health"),
    ("agent", "GET /health"),
    ("query", "GET /health"),
    ("loader", "GET /health"),
    ("stream-load", "GET /health"),
    ("stream-load", "GET /"),  # says what it is
    ("stream-load", "GET /api/_load_error_log"),  # the name of a file is the credential
}


def query() -> FastAPI:
    service: Any = SimpleNamespace(metrics=SimpleNamespace(registry=Metrics("query")))
    return query_http.make_app(service, Users({}), TOKEN)


def loader() -> FastAPI:
    def nobody(*_: object) -> Any:
        raise AssertionError("it was asked without credentials")

    return loader_http.make_app("job", TOKEN, Metrics("loader"), nobody, nobody)


@pytest.fixture
def apps(tmp_path: Path) -> Iterator[dict[str, FastAPI]]:
    supervisor = Supervisor(tmp_path / "agent", Commands(Host(tmp_path, tmp_path, "file:///nowhere"), {}))
    cluster = Cluster(tmp_path / "store")
    with load_door(tmp_path / "door") as door:
        yield {
            "coordinator": cluster.app,
            "agent": create_app(supervisor, TOKEN, lambda: None),
            "query": query(),
            "loader": loader(),
            "stream-load": door.assembly.app,
        }
    cluster.close()
    supervisor.close()


def asked(app: FastAPI) -> Iterator[tuple[str, int]]:
    """Each route of it, and the status of its answer."""
    client = TestClient(app, follow_redirects=False)
    for route in app.routes:
        assert isinstance(route, Route), f"{route} is another kind of route: ask it too"
        for method in sorted((route.methods or set()) - {"HEAD"}):
            path = re.sub(r"\{\w+\}", "x", route.path)
            answer = client.request(method, path, json={"sql": "select 1"})
            yield f"{method} {route.path}", answer.status_code


def test_only_these_pages_want_no_credentials(apps: dict[str, FastAPI]) -> None:
    answers = {(name, route): status for name, app in apps.items() for route, status in asked(app)}
    assert len(answers) > 70
    assert {route for route, status in answers.items() if status != 401} == OPEN
