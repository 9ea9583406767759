"""The plugin has no open endpoint, and its folder holds nothing that Airflow would trip over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, HTTPException
from fastapi.middleware import Middleware
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from rtolap.airflow.links import URL_PREFIX
from rtolap.airflow.plugin import RtolapPlugin, app, host_checks

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"


def guards(route: APIRoute) -> list[Any]:
    return [dependency.dependency for dependency in route.dependencies]


def test_every_route_asks_airflow_who_is_looking() -> None:
    routes = [route for route in app.routes if isinstance(route, APIRoute)]
    assert len(routes) == len(app.routes) == 4
    for route in routes:
        assert len(guards(route)) == 1
        assert "requires_access_dag" in guards(route)[0].__qualname__
        assert "{dag_id}" in route.path  # the guard reads it from there


def test_a_refused_reader_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise HTTPException(403)

    route = next(route for route in app.routes if isinstance(route, APIRoute))
    monkeypatch.setitem(app.dependency_overrides, guards(route)[0], refuse)
    answer = TestClient(app).get("/dags/d/processes/receiver.r0/log")
    assert answer.status_code == 403


def test_the_plugin_mounts_its_routes_where_the_links_lead() -> None:
    assert [mounted["url_prefix"] for mounted in RtolapPlugin.fastapi_apps] == [URL_PREFIX]


def test_only_named_hosts_are_answered_where_some_are_named() -> None:
    (check,) = host_checks("127.0.0.1, localhost")
    asked = FastAPI(middleware=[Middleware(check["middleware"], **check["kwargs"])])
    asked.get("/")(lambda: "here")
    for host, code in (("localhost:8080", 200), ("127.0.0.1", 200), ("elsewhere.example", 400), ("", 400)):
        assert TestClient(asked).get("/", headers={"host": host}).status_code == code, host
    assert host_checks("") == host_checks(" , ") == []


def test_airflow_would_run_one_file_of_the_plugins_folder() -> None:
    assert (PLUGINS / ".airflowignore").read_text().split() == ["rtolap/"]
    assert [path.name for path in PLUGINS.glob("*.py")] == ["rtolap_plugin.py"]
