"""The plugin has no open endpoint, and its folder holds nothing that Airflow would trip over."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Self

import pytest
from fastapi import FastAPI, HTTPException, Request
from fastapi.middleware import Middleware
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.links import URL_PREFIX
from rtolap.airflow.plugin import RtolapPlugin, app, host_checks, one_dag
from rtolap.protocols.agent.messages import LastGeneration, ProcessStatus, WaitingTask

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"


def guards(route: APIRoute) -> list[Any]:
    return [dependency.dependency for dependency in route.dependencies]


def test_every_route_asks_airflow_who_is_looking() -> None:
    routes = [route for route in app.routes if isinstance(route, APIRoute)]
    assert len(routes) == len(app.routes) == 4
    for route in routes:
        assert len(guards(route)) == 2
        assert guards(route)[0] is one_dag
        assert "requires_access_dag" in guards(route)[1].__qualname__
        assert "{dag_id}" in route.path  # the guard reads it from there


def test_a_refused_reader_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise HTTPException(403)

    route = next(route for route in app.routes if isinstance(route, APIRoute))
    monkeypatch.setitem(app.dependency_overrides, guards(route)[1], refuse)
    answer = TestClient(app).get("/dags/d/processes/receiver.r0/log")
    assert answer.status_code == 403


class FakeAgent:
    """Answers for processes by key, ended ones as well; a log that is read brings `replaced_by` on."""

    def __init__(self, processes: dict[str, ProcessStatus]) -> None:
        self.processes = processes
        self.replaced_by: ProcessStatus | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        """Nothing is open."""

    def last(self, key: str) -> LastGeneration:
        found = self.processes.get(key)
        return LastGeneration(0) if found is None else LastGeneration(found.generation, dict(found.labels))

    def log(self, key: str, bytes_max: int) -> str:
        if self.replaced_by is not None:
            self.processes[key] = self.replaced_by
        return f"the log of {key}"


def process(key: str, dag_id: str | None, generation: int = 1) -> ProcessStatus:
    labels = {} if dag_id is None else WaitingTask(dag_id, "run", "task").label()
    return ProcessStatus(
        key=key, generation=generation, state="RUNNING", reason="", argv=(), labels=labels, log_tail=()
    )


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> FakeAgent:
    """Who asks may read the logs of every DAG whose name begins with `own`."""

    def allowed(request: Request) -> None:
        if not request.path_params["dag_id"].startswith("own") and request.path_params["dag_id"] != "~":
            raise HTTPException(403)

    for route in app.routes:
        if isinstance(route, APIRoute):
            monkeypatch.setitem(app.dependency_overrides, guards(route)[-1], allowed)
    found = FakeAgent({})
    monkeypatch.setattr(RtolapHook, "agent", lambda self: found)
    return found


def log_of(dag_id: str, key: str) -> tuple[int, str]:
    answer = TestClient(app).get(f"/dags/{dag_id}/processes/{key}/log")
    return answer.status_code, answer.text


def test_a_processes_log_is_shown_under_the_dag_of_its_task_only(agent: FakeAgent) -> None:
    """Drawn: processes of several DAGs, and of none; each is asked for under each DAG."""
    rng = random.Random(7)
    dags = ["own_a", "own_b", "other", "~"]
    owners = {f"receiver.r{number}": rng.choice([*dags[:3], None]) for number in range(20)}
    agent.processes = {key: process(key, owner) for key, owner in owners.items()}
    shown = set()
    for key, owner in owners.items():
        for dag_id in dags:
            code, text = log_of(dag_id, key)
            if dag_id == owner and dag_id.startswith("own"):
                assert (code, text) == (200, f"the log of {key}")
                shown.add(dag_id)
            else:
                assert code == (403 if dag_id == "other" else 404)
                assert "the log of" not in text
    assert shown == {"own_a", "own_b"}


def test_a_process_that_another_dag_takes_over_meanwhile_is_not_shown(agent: FakeAgent) -> None:
    agent.processes = {"build.x": process("build.x", "own_a")}
    agent.replaced_by = process("build.x", "other", 2)
    assert log_of("own_a", "build.x")[0] == 404
    agent.processes = {"build.x": process("build.x", "own_a")}
    agent.replaced_by = process("build.x", "own_a", 2)
    assert log_of("own_a", "build.x")[0] == 503


def test_no_route_takes_the_name_that_stands_for_every_dag(agent: FakeAgent) -> None:
    for route in app.routes:
        assert isinstance(route, APIRoute)
        path = route.path.format(dag_id="~", key="receiver.r0", cube="c", segment="s")
        assert TestClient(app).get(path).status_code == 404


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
