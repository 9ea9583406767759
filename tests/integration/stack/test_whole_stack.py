"""Every part of the stack, again in the folder of the demonstration: what a user waits for, whether what was
there is there, and what stays behind."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pymysql
import pytest
from rtolap.base.pids import lives
from rtolap.stack.components import COMPONENTS
from rtolap.stack.layout import StackLayout
from rtolap.stack.pids import PidRecord, is_same_process, read_record, session_members
from rtolap.stack.secrets import AIRFLOW_PASSWORD, AIRFLOW_USER, SQL_USER, read_secret
from rtolap.stack.state import PORT_OWNERS, load_state
from rtolap.stack.together import marked_processes

from tests.support.demonstrated import ELSEWHERE, UNUSUAL, Demonstrated, user_environment
from tests.support.hostile.process_secrets import readable, secret_words, showing
from tests.support.waiting import SLOWNESS, patience_s, until

pytestmark = [pytest.mark.integration]

PROJECT = Path(__file__).resolve().parents[3]
# The requirement, on two cores. RTOLAP_TEST_SLOWNESS stretches it on a machine that is busy with other work.
USABLE_S_MAX = 60.0 * SLOWNESS
_POLL_S = 0.2


class Stack:
    def __init__(self, folder: Path) -> None:
        self.layout = StackLayout(folder)
        self.started: list[subprocess.Popen[str]] = []

    def start(self, verb: str, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "rtolap.cli.main", "stack", verb, "--json"]
        started = subprocess.Popen(
            [*command, "--dir", str(self.layout.root), *arguments],
            cwd=PROJECT,
            env={**user_environment(), **ELSEWHERE, **UNUSUAL},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(started)
        return started

    def run(self, verb: str, *arguments: str) -> dict[str, Any]:
        return finished(self.start(verb, *arguments))

    def records(self) -> list[PidRecord]:
        return [record for path in self.layout.pid_files() if (record := read_record(path))]


def finished(command: subprocess.Popen[str]) -> dict[str, Any]:
    said, told = command.communicate(timeout=patience_s(300))
    assert command.returncode == 0, told
    answer: dict[str, Any] = json.loads(said)
    return answer


def sql(layout: StackLayout, ports: dict[str, int], text: str) -> Any:
    """The one value that is answered over MySQL's protocol."""
    with pymysql.connect(
        host="127.0.0.1",
        port=ports["query-mysql"],
        user=SQL_USER,
        password=read_secret(layout, "sql-password"),
        connect_timeout=5,
        read_timeout=5,
    ) as connection:
        cursor = connection.cursor()
        cursor.execute(text)
        ((value,),) = cursor.fetchall()
        return value


def unusable(layout: StackLayout, ports: dict[str, int]) -> str | None:
    """None once SQL is answered over MySQL's protocol and Airflow's API lists the DAGs."""
    airflow = f"http://127.0.0.1:{ports['airflow']}"
    try:
        assert sql(layout, ports, "SELECT 1 + 1") == 2
        with httpx.Client(base_url=airflow, timeout=5, trust_env=False) as api:
            login = {"username": AIRFLOW_USER, "password": read_secret(layout, AIRFLOW_PASSWORD)}
            answer = api.post("/auth/token", json=login).raise_for_status()
            headers = {"authorization": f"Bearer {answer.json()['access_token']}"}
            dags = api.get("/api/v2/dags", headers=headers).raise_for_status().json()["dags"]
            found = {dag["dag_id"] for dag in dags}
            return None if "rtolap_receivers" in found else f"Airflow knows only the DAGs {found}"
    except (pymysql.MySQLError, OSError, httpx.HTTPError) as error:
        return f"{type(error).__name__}: {error}"


def flights(layout: StackLayout, ports: dict[str, int]) -> int | None:
    """So many are answered; None while the cluster is not there yet."""
    try:
        return int(sql(layout, ports, "SELECT COUNT(*) FROM flights_cube"))
    except (pymysql.MySQLError, OSError):
        return None


def listening(process: psutil.Process) -> set[str]:
    try:
        connections = process.net_connections("tcp")
    except psutil.NoSuchProcess:
        return set()
    return {one.laddr.ip.removeprefix("::ffff:") for one in connections if one.status == psutil.CONN_LISTEN}


def refused_by_airflow(port: int) -> list[str]:
    """What should be refused on its page, and is not."""
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False) as api:
        wrong = {"username": AIRFLOW_USER, "password": "a guess"}
        elsewhere = {"host": f"elsewhere.example:{port}"}
        refused = {
            "DAGs without a token": api.get("/api/v2/dags").status_code == 401,
            "a token without a password": api.get("/auth/token").status_code == 403,
            "a login without a password": api.get("/auth/token/login").status_code == 403,
            "a wrong password": api.post("/auth/token", json=wrong).status_code == 401,
            "another name": api.get("/api/v2/version", headers=elsewhere).status_code == 400,
        }
        assert api.get("/api/v2/version", headers={"host": f"localhost:{port}"}).is_success
    return [what for what, is_refused in refused.items() if not is_refused]


@pytest.fixture
def stack(demonstrated: Demonstrated) -> Iterator[Stack]:
    made = Stack(demonstrated.folder)
    yield made
    for command in made.started:
        command.wait(300)  # of a test that has failed meanwhile: nothing can be stopped before
    made.run("down")


def test_the_second_start_is_usable_in_time_with_what_was_there_and_leaves_nothing_running(
    stack: Stack, demonstrated: Demonstrated, capsys: pytest.CaptureFixture[str], record_property: Any
) -> None:
    state = load_state(stack.layout)
    assert state is not None
    started_s = time.monotonic()
    up = stack.start("up")
    while (missing := unusable(stack.layout, state.ports)) is not None:
        assert time.monotonic() - started_s < USABLE_S_MAX, f"not usable in time: {missing}"
        assert up.poll() in (None, 0), up.communicate()[1]
        time.sleep(_POLL_S)
    usable_s = time.monotonic() - started_s
    second = finished(up)
    usual = [name for name, component in COMPONENTS.items() if not component.on_request]
    started = {name: port for name, port in state.ports.items() if PORT_OWNERS.get(name, name) in usual}
    assert second["ports"] == started
    status = stack.run("status")
    states = {part["name"]: part["state"] for part in status["components"]}
    assert states == dict.fromkeys(usual, "ready")

    shown = json.loads(demonstrated.command.stdout)["moments"][-1]["events"][1]
    until(lambda: flights(stack.layout, state.ports) == shown, "all is there", timeout_s=120, poll_s=0.2)
    records = stack.records()
    assert len(records) == len(usual)
    members = {psutil.Process(pid) for record in records for pid in session_members(record)}
    assert len(members) > len(usual)  # Airflow's parts have children
    assert {address for member in members for address in listening(member)} <= {"127.0.0.1", "::1"}
    texts = readable({*members, *marked_processes(stack.layout)})
    assert len(texts) >= len(usual)
    assert showing(texts.items(), secret_words(stack.layout.secrets)) == []
    assert refused_by_airflow(second["ports"]["airflow"]) == []
    assert stack.run("down") == {"swept": 0}
    assert marked_processes(stack.layout) == []
    pumps = [record.pump for record in records if record.pump]
    assert [pump for pump in pumps if is_same_process(pump)] == []
    assert [member for member in members if lives(member)] == []

    figures = {"second_usable_s": usable_s, "second_up_s": second["seconds"]}
    for name, seconds in figures.items():
        record_property(name, round(seconds, 1))
    with capsys.disabled():
        print("\nwhole stack: " + ", ".join(f"{name} {value:.1f}" for name, value in figures.items()))
