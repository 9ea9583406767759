"""Airflow's four components and an agent, as the stack starts them, on DAGs of these tests."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from rtolap.stack.components import COMPONENTS, DEFAULT_PORTS, Surroundings
from rtolap.stack.environment import HOST, airflow_url, rtolap_settings
from rtolap.stack.layout import StackLayout
from rtolap.stack.ports import free_port
from rtolap.stack.process import ManagedProcess
from rtolap.stack.secrets import ensure_secrets, read_secret
from rtolap.wire.agent import ProcessStatus
from rtolap.wire.agent_client import AgentClient

PROJECT = Path(__file__).resolve().parents[3]
DAGS = Path(__file__).parent / "dags"
SHIPPED_DAGS = ("segment_build.py",)  # those that start nothing by themselves in these tests
AIRFLOW = ("airflow-api", "airflow-scheduler", "airflow-dag-processor", "airflow-triggerer")
DEADLINE_S = 60.0
T = TypeVar("T")

# The tests' own process runs Airflow in unit test mode: the servers must not.
OVERRIDES = {
    "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
    "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
    "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
}


def wait_for(what: str, look: Callable[[], T | None], deadline_s: float = DEADLINE_S) -> T:
    """The first answer of `look` that is not None."""
    end_s = time.monotonic() + deadline_s
    while time.monotonic() < end_s:
        found = look()
        if found is not None:
            return found
        time.sleep(0.2)
    raise AssertionError(f"no {what} within {deadline_s} s")


@dataclass(frozen=True)
class Airflow:
    """What the tests do with the running components."""

    api: httpx.Client
    agent: AgentClient
    components: dict[str, ManagedProcess]
    around: Surroundings

    until = staticmethod(wait_for)

    def trigger(self, dag_id: str) -> str:
        def look() -> str | None:
            answer = self.api.post(f"/api/v2/dags/{dag_id}/dagRuns", json={"logical_date": None})
            if answer.status_code == httpx.codes.NOT_FOUND:
                return None  # not parsed yet
            return str(answer.raise_for_status().json()["dag_run_id"])

        return wait_for(f"DAG {dag_id}", look)

    def task(self, dag_id: str, run_id: str, task_id: str = "process") -> dict[str, Any]:
        answer = self.api.get(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}")
        found: dict[str, Any] = answer.raise_for_status().json()
        return found

    def until_task(self, dag_id: str, run_id: str, *states: str) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            found = self.task(dag_id, run_id)
            return found if found["state"] in states else None

        return wait_for(f"{dag_id} in {states}", look)

    def until_running(self, key: str, generation: int) -> ProcessStatus:
        def look() -> ProcessStatus | None:
            if self.agent.generation(key) < generation:
                return None
            status = self.agent.get(key)
            return status if status.generation == generation and status.pid else None

        return wait_for(f"{key} generation {generation}", look)

    def until_process(self, key: str, *states: str) -> ProcessStatus:
        def look() -> ProcessStatus | None:
            status = self.agent.get(key)
            return status if status.state in states else None

        return wait_for(f"{key} in {states}", look)

    def clear(self, dag_id: str, run_id: str) -> None:
        body = {"dry_run": False, "dag_run_id": run_id, "only_failed": False, "task_ids": ["process"]}
        self.api.post(f"/api/v2/dags/{dag_id}/clearTaskInstances", json=body).raise_for_status()

    def mark(self, dag_id: str, run_id: str, state: str) -> None:
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/process"
        self.api.patch(path, json={"new_state": state}).raise_for_status()


@pytest.fixture(scope="session")
def airflow_home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="rtolap-airflow-it-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def airflow(airflow_home: Path) -> Iterator[Airflow]:
    layout = StackLayout(airflow_home)
    ensure_secrets(layout)
    layout.store.mkdir(parents=True)
    ports: dict[str, int] = {}
    for name in DEFAULT_PORTS:
        ports[name] = free_port(ports.values())
    around = Surroundings(layout, ports, rtolap_settings(layout, ports))
    dags = layout.root / "dags"
    shutil.copytree(DAGS, dags)
    for name in SHIPPED_DAGS:
        shutil.copy(PROJECT / "dags" / name, dags)
    overrides = {**OVERRIDES, "AIRFLOW__CORE__DAGS_FOLDER": str(dags)}
    components: dict[str, ManagedProcess] = {}
    for name in ("agent", *AIRFLOW):
        spec = COMPONENTS[name].spec(around)
        components[name] = ManagedProcess(replace(spec, env={**spec.env, **overrides}))
    agent = AgentClient(f"http://{HOST}:{ports['agent']}", read_secret(layout, "token"))
    try:
        for component in components.values():
            component.start(wait=False)
        for component in components.values():
            component.wait_ready()
        url = airflow_url(ports)
        token = httpx.get(f"{url}/auth/token", trust_env=False).raise_for_status().json()["access_token"]
        headers = {"authorization": f"Bearer {token}"}
        with httpx.Client(base_url=url, headers=headers, timeout=20, trust_env=False) as api:
            yield Airflow(api, agent, components, around)
    finally:
        for name in reversed(components):
            if name == "agent" and components[name].missing() is None:
                agent.shutdown(stop_processes=True)
            components[name].stop()
        agent.close()
