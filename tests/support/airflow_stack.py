"""A whole deployment for tests of the Airflow side: agent, coordinator, query and Airflow's components.

ZooKeeper and Kafka are those of the test session. DAGs are paused until a test unpauses them, so that none of
the shipped ones does anything by itself. Signing in is real: `USERS` have their own passwords and roles.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import httpx
import msgspec
import psutil
from rtolap.agent.processes import KEY_VARIABLE
from rtolap.base.errors import NotFound
from rtolap.base.pids import lives
from rtolap.protocols.agent.client import AgentClient
from rtolap.protocols.agent.messages import ProcessStatus
from rtolap.protocols.coordinator.client import CoordinatorClient
from rtolap.stack.components import COMPONENTS, Surroundings
from rtolap.stack.environment import airflow_url, rtolap_settings
from rtolap.stack.layout import StackLayout
from rtolap.stack.ports import HOST, free_port
from rtolap.stack.process import ManagedProcess
from rtolap.stack.secrets import ensure_secrets, read_secret
from rtolap.stack.state import DEFAULT_PORTS

from tests.support.waiting import patience_s

DEADLINE_S = 90.0
STRANGER = "stranger"
USERS = {"admin": "admin", "ada": "user", "viewer": "viewer", STRANGER: ""}  # name → role; "" has no rights
AIRFLOW = tuple(name for name in COMPONENTS if name.startswith("airflow-"))
ENDED = frozenset({"success", "failed", "skipped", "upstream_failed"})
T = TypeVar("T")


def wait_for(what: str, look: Callable[[], T | None], deadline_s: float = DEADLINE_S) -> T:
    """Return the first answer of `look` that is not None. Each look costs the server some 15 ms of processor
    time, so a long wait looks twice a second."""
    end_s, pause_s = time.monotonic() + patience_s(deadline_s), 0.1
    while time.monotonic() < end_s:
        found = look()
        if found is not None:
            return found
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.3, 0.5)
    raise AssertionError(f"no {what} within {patience_s(deadline_s):g} s")


@dataclass
class AirflowStack:
    """The running components of a stack with Airflow, for tests. `environment` is that of Airflow's own
    processes.
    """

    around: Surroundings
    components: Mapping[str, ManagedProcess]
    environment: Mapping[str, str]
    passwords: Mapping[str, str]

    until = staticmethod(wait_for)

    @cached_property
    def url(self) -> str:
        return airflow_url(self.around.ports)

    @cached_property
    def token(self) -> str:
        """Return the cluster's token, which agent, coordinator and query require."""
        return read_secret(self.around.layout, "token")

    @cached_property
    def api(self) -> httpx.Client:
        return self.signed_in("admin")

    @cached_property
    def agent(self) -> AgentClient:
        return AgentClient(f"http://{HOST}:{self.around.ports['agent']}", self.token)

    @cached_property
    def coordinator(self) -> CoordinatorClient:
        return CoordinatorClient([f"http://{HOST}:{self.around.ports['coordinator']}"], self.token)

    def signed_in(self, user: str) -> httpx.Client:
        """Return a client with the token that Airflow gives to this user."""
        body = {"username": user, "password": self.passwords[user]}
        answer = httpx.post(f"{self.url}/auth/token", json=body, trust_env=False, timeout=patience_s(20))
        return self.client({"authorization": f"Bearer {answer.raise_for_status().json()['access_token']}"})

    def client(self, headers: Mapping[str, str]) -> httpx.Client:
        return httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=patience_s(20),
            limits=httpx.Limits(keepalive_expiry=2.0),  # Airflow closes what rests for 5 s, as httpx does
            trust_env=False,
        )

    def command(self, *words: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run a command of the virtual environment (`airflow`, `rtolap`), as somebody on this host runs
        it."""
        program = Path(sys.executable).with_name(words[0])
        return subprocess.run(
            [str(program), *words[1:]],
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=patience_s(timeout_s),
            check=False,
        )

    def sql(self, text: str) -> dict[str, Any]:
        """Return the answer of the HTTP endpoint. Raises httpx.HTTPStatusError."""
        url = f"http://{HOST}:{self.around.ports['query-http']}/api/v1/query"
        headers = {"authorization": f"Bearer {self.token}"}
        answer = httpx.post(url, json={"sql": text}, headers=headers, trust_env=False, timeout=patience_s(60))
        found: dict[str, Any] = answer.raise_for_status().json()
        return found

    def lineage(self, job: str) -> list[dict[str, Any]]:
        """Return the events of OpenLineage about a DAG or a task (`dag.task`), as Airflow has sent them."""
        prefix = events_of(self.around.layout.root)
        texts = [file.read_text() for file in sorted(prefix.parent.glob(f"{prefix.name}-*.json"))]
        events = [json.loads(text) for text in texts if text.endswith("\n")]  # whole ones
        return [event for event in events if event["job"]["name"] == job]

    # -- DAGs and their runs ----------------------------------------------------------------------------

    def pause(self, dag_id: str, paused: bool = True) -> None:
        """Pause a DAG or not. If that is a change, its file is read again: only then are assets watched for
        it, or no more."""

        def look() -> dict[str, Any] | None:
            answer = self.api.get(f"/api/v2/dags/{dag_id}")
            if answer.status_code == httpx.codes.NOT_FOUND:
                return None  # not parsed yet
            found: dict[str, Any] = answer.raise_for_status().json()
            return found

        dag = wait_for(f"DAG {dag_id}", look)
        if dag["is_paused"] is paused:
            return
        self.api.patch(f"/api/v2/dags/{dag_id}", json={"is_paused": paused}).raise_for_status()
        answer = self.api.put(f"/api/v2/parseDagFile/{dag['file_token']}")
        if answer.status_code != httpx.codes.CONFLICT:  # it is going to be read anyway
            answer.raise_for_status()

    def unpause(self, dag_id: str) -> None:
        self.pause(dag_id, paused=False)

    def trigger(self, dag_id: str, **conf: Any) -> str:
        """Unpause it and start a run by hand; returns the run's id."""
        self.unpause(dag_id)
        answer = self.api.post(f"/api/v2/dags/{dag_id}/dagRuns", json={"logical_date": None, "conf": conf})
        return str(answer.raise_for_status().json()["dag_run_id"])

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        answer = self.api.get(f"/api/v2/dags/{dag_id}/dagRuns", params={"limit": 100})
        found: list[dict[str, Any]] = answer.raise_for_status().json()["dag_runs"]
        return found

    def end_services(self, dag_id: str, *keys: str) -> None:
        """Pause the DAG of declared services, end its runs and these processes, and forget the runs: what is
        declared next starts when the DAG is unpaused. A trigger that does not run yet stops no process."""
        self.pause(dag_id)
        paths = [f"/api/v2/dags/{dag_id}/dagRuns/{run['dag_run_id']}" for run in self.runs(dag_id)]
        for path in paths:
            self.api.patch(path, json={"state": "failed"}).raise_for_status()

        def ended() -> bool | None:
            live = [each for each in self.agent.processes() if each.is_live and each.key in keys]
            for process in live:
                self.agent.stop(process.key, process.generation)
            return None if live else True

        wait_for(f"end of {keys}", ended)
        for path in paths:
            self.api.delete(path).raise_for_status()

    def run_dag(self, dag_id: str, **conf: Any) -> str:
        """Start a run by hand and wait until it has succeeded; returns its id."""
        run_id = self.trigger(dag_id, **conf)
        self.until_run(dag_id, run_id)
        return run_id

    def until_run(self, dag_id: str, run_id: str, state: str = "success") -> None:
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}"

        def look() -> str | None:
            found = str(self.api.get(path).raise_for_status().json()["state"])
            return found if found in ENDED else None

        try:
            ended = wait_for(f"end of {dag_id} {run_id}", look, 2 * DEADLINE_S)  # a build may be in it
        except AssertionError as late:
            raise AssertionError(f"{late}: {self.states(dag_id, run_id)}") from late
        assert ended == state, self.states(dag_id, run_id)

    def states(self, dag_id: str, run_id: str) -> list[tuple[str, str]]:
        return [(task["task_id"], task["state"]) for task in self.tasks(dag_id, run_id)]

    def asset_events(self, name: str) -> list[dict[str, Any]]:
        """Return the events of the asset of this name, the oldest first. Airflow's response is an internal
        error as long as a run that one of them has started waits for its start.
        """
        named: dict[str, str | bool] = {
            "name_pattern": name,
            "only_active": False,
        }  # those that no DAG names are not active
        assets = self.api.get("/api/v2/assets", params=named).raise_for_status().json()
        (asset_id,) = [asset["id"] for asset in assets["assets"] if asset["name"] == name]
        params = {"asset_id": asset_id, "order_by": "timestamp", "limit": 100}

        def look() -> list[dict[str, Any]] | None:
            answer = self.api.get("/api/v2/assets/events", params=params)
            if answer.status_code == httpx.codes.INTERNAL_SERVER_ERROR:
                return None
            found: list[dict[str, Any]] = answer.raise_for_status().json()["asset_events"]
            return found

        return wait_for(f"events of {name}", look)

    # -- tasks ------------------------------------------------------------------------------------------

    def tasks(self, dag_id: str, run_id: str = "~", task_id: str | None = None) -> list[dict[str, Any]]:
        """Return the task instances of a run, or of all; mapped ones each by itself."""
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances"
        found = self.api.get(path, params={"limit": 500}).raise_for_status().json()["task_instances"]
        return [task for task in found if task_id in (None, task["task_id"])]

    def task(self, dag_id: str, run_id: str, task_id: str = "process") -> dict[str, Any]:
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}"
        found: dict[str, Any] = self.api.get(path).raise_for_status().json()
        return found

    def until_task(self, dag_id: str, run_id: str, *states: str, task_id: str = "process") -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            found = self.task(dag_id, run_id, task_id)
            return found if found["state"] in states else None

        try:
            return wait_for(f"{dag_id}.{task_id} in {states}", look)
        except AssertionError as late:
            found = self.task(dag_id, run_id, task_id)
            said = self.log(found)[-3000:] if found["try_number"] else "it was never tried"
            raise AssertionError(f"{late}: it is {found['state']}; {said}") from late

    def result(self, task: Mapping[str, Any]) -> Any:
        """Return the result of a task that has ended."""
        where = "/api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}".format(**task)
        params = {"map_index": task["map_index"], "deserialize": True}
        answer = self.api.get(f"{where}/xcomEntries/return_value", params=params).raise_for_status()
        return answer.json()["value"]

    def log(self, task: Mapping[str, Any]) -> str:
        """Return the log of the newest try of a task."""
        where = "/api/v2/dags/{dag_id}/dagRuns/{dag_run_id}/taskInstances/{task_id}".format(**task)
        params = {"map_index": task["map_index"], "full_content": True}
        answer = self.api.get(f"{where}/logs/{task['try_number']}", params=params).raise_for_status()
        return "\n".join(json.dumps(line) for line in answer.json()["content"])

    def until_logged(self, task: Mapping[str, Any], *texts: str) -> None:
        """Wait until the log of the newest try has these texts: a state may be told before the last lines of
        the log are written."""

        def look() -> bool | None:
            said = self.log(task)
            return True if all(text in said for text in texts) else None

        try:
            wait_for(f"{texts} in the log of {task['task_id']}", look)
        except AssertionError as late:
            raise AssertionError(f"{late}: {self.log(task)[-3000:]}") from late

    def clear(self, dag_id: str, run_id: str, *tasks: str | tuple[str, int]) -> None:
        """Clear these tasks, mapped ones as (task, map index), whatever their state.

        Where all tasks of the run have ended, it has to end first: one that the scheduler ends meanwhile
        would stay so, and the cleared task without a state.
        """
        if all(task["state"] in ENDED for task in self.tasks(dag_id, run_id)):
            path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}"

            def ended() -> bool | None:
                return True if self.api.get(path).raise_for_status().json()["state"] in ENDED else None

            wait_for(f"end of {dag_id} {run_id}", ended)
        named = [[*task] if isinstance(task, tuple) else task for task in tasks or ("process",)]
        body = {"dry_run": False, "dag_run_id": run_id, "only_failed": False, "task_ids": named}
        self.api.post(f"/api/v2/dags/{dag_id}/clearTaskInstances", json=body).raise_for_status()

    def mark(self, dag_id: str, run_id: str, state: str) -> None:
        path = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/process"
        self.api.patch(path, json={"new_state": state}).raise_for_status()

    # -- processes of the agent -------------------------------------------------------------------------

    def until_running(self, key: str, generation: int = 1) -> ProcessStatus:
        def look() -> ProcessStatus | None:
            try:
                status = self.agent.get(key)
            except NotFound:
                return None
            return status if status.generation == generation and status.pid else None

        return wait_for(f"{key} generation {generation}", look)

    def started_for(self, key: str) -> list[int]:
        """Return the ids of the processes on this host that this deployment's agent has started for the key,
        whatever their generation, without those that another one of them has started.
        """
        mine = {KEY_VARIABLE: key, "RTOLAP_INCLUDE_DIR": self.around.settings["RTOLAP_INCLUDE_DIR"]}
        parents: dict[int, int] = {}
        for process in psutil.process_iter():
            try:
                if lives(process) and mine.items() <= process.environ().items():
                    parents[process.pid] = process.ppid()
            except psutil.Error:
                continue  # it has just ended, or is nobody we started
        return sorted(pid for pid, parent in parents.items() if parent not in parents)

    def until_renewed(self, key: str) -> None:
        """Wait until a trigger in the triggerer renews the process's lease; `deferred` alone says only that
        one will."""

        def lease_end_s() -> float:
            return time.monotonic() + self.agent.get(key).lease_left_s

        before_s = lease_end_s()
        wait_for(f"renewal of {key}", lambda: True if lease_end_s() > before_s + 0.3 else None)

    def until_process(self, key: str, *states: str) -> ProcessStatus:
        def look() -> ProcessStatus | None:
            status = self.agent.get(key)
            return status if status.state in states else None

        return wait_for(f"{key} in {states}", look)


def exports_of(root: Path) -> Path:
    """Return the folder whose files batches may read."""
    return root / "exports"


def held_python_of(root: Path) -> Path:
    """Return the interpreter of Spark's tasks that a connection may name: a test writes it, to hold them."""
    return root / "held-python"


def events_of(root: Path) -> Path:
    """Return how the names of the files begin that hold events of OpenLineage."""
    return root / "openlineage-event"


@contextmanager
def airflow_stack(
    root: Path, dags: Iterable[Path], include: Path, *, zookeeper: str, kafka: str, node: str = "/airflow-it"
) -> Iterator[AirflowStack]:
    """Yield a stack that is started and answers; nothing of it runs afterwards. `dags` are files to copy.
    `node` is the node of ZooKeeper below which this deployment keeps its state."""
    layout = StackLayout(root)
    ensure_secrets(layout)
    layout.store.mkdir(parents=True)
    ports = {name: int(at.rpartition(":")[2]) for name, at in (("zookeeper", zookeeper), ("kafka", kafka))}
    for name in sorted(set(DEFAULT_PORTS) - set(ports)):
        ports[name] = free_port(ports.values())
    settings = rtolap_settings(layout, ports)
    settings |= {"RTOLAP_ZOOKEEPER_ROOT": node, "RTOLAP_INCLUDE_DIR": str(include)}
    settings |= {"RTOLAP_FLEET_SOURCES": str(include / "fleet_sources.yaml")}  # which a test may write
    allowed = root / "spark-allowed.yaml"
    allowed.touch(mode=0o600)
    interpreter = re.escape(str(held_python_of(root)))
    settings_allowed = {"spark.pyspark.python": interpreter}
    rules = {"sources": [f"{exports_of(root).as_uri()}/"], "settings": settings_allowed}
    allowed.write_text(json.dumps(rules))
    settings |= {"RTOLAP_SPARK_ALLOWED": str(allowed)}
    around = Surroundings(layout, ports, settings)
    folder = root / "dags"
    folder.mkdir()
    for path in dags:
        shutil.copy(path, folder)
    passwords = {user: secrets.token_urlsafe(16) for user in USERS}
    password_file = layout.secret("airflow-passwords")
    password_file.touch(mode=0o600)
    password_file.write_bytes(msgspec.json.encode(passwords))
    overrides = {
        "AIRFLOW__CORE__UNIT_TEST_MODE": "False",  # the tests' own process runs Airflow in that mode
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder),
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{user}:{USERS[user]}" for user in USERS),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(password_file),
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
        # No file changes, and `pause` tells of what else matters. Every 30 s costs a tenth of a core.
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
        # Nor is one that was read too slowly, on a busy machine, tried again soon: 30 and 50 s by default.
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "120",
        "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "180",
        "AIRFLOW__SCHEDULER__TRIGGER_TIMEOUT_CHECK_INTERVAL": "1",
        # A file an event: several processes write.
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
            {"type": "file", "log_file_path": str(events_of(root))}
        ),
    }
    components: dict[str, ManagedProcess] = {}
    for name in ("coordinator", "query", "agent", *AIRFLOW):
        spec = COMPONENTS[name].spec(around)
        components[name] = ManagedProcess(replace(spec, env={**spec.env, **overrides}))
    stack = AirflowStack(around, components, components["airflow-api"].spec.env, passwords)
    try:
        for component in components.values():
            component.start(wait=False)
        for component in components.values():
            component.wait_ready()
        yield stack
    finally:
        if components["agent"].missing() is None:
            stack.agent.shutdown(stop_processes=True)
        with ThreadPoolExecutor(len(components)) as pool:
            list(pool.map(ManagedProcess.stop, components.values()))
        stack.coordinator.close()
        stack.agent.close()
