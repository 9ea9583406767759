"""`rtolap stack` over real servers: the two Java ones suffice to see its life."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from rtolap.stack.artifacts import JavaArtifacts
from rtolap.stack.components import DEFAULT_PORTS
from rtolap.stack.layout import StackLayout
from rtolap.stack.ports import free_port
from rtolap.stack.secrets import read_secret
from rtolap.stack.sweep import marked_processes
from rtolap.wire.agent import ProcessSpec as AgentProcess
from rtolap.wire.agent_client import AgentClient

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("java")]
ONLY = ("--only", "zookeeper,kafka")


class Command:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "rtolap.cli.main", "stack", verb, "--dir", str(self.folder)]
        return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=180)

    def status(self) -> tuple[int, dict[str, dict[str, object]]]:
        done = self("status", "--json")
        return done.returncode, {part["name"]: part for part in json.loads(done.stdout)["components"]}

    def left(self) -> list[psutil.Process]:
        return marked_processes(StackLayout(self.folder))


@pytest.fixture
def stack(tmp_path: Path, java: JavaArtifacts) -> Iterator[Command]:
    command = Command(tmp_path / "stack")
    yield command
    command("down")


def _ports() -> list[str]:
    """Ports of this test's own, so that a stack of the same machine is not in its way."""
    taken: set[int] = set()
    arguments = []
    for name in DEFAULT_PORTS:
        port = free_port(taken)
        taken.add(port)
        arguments += ["--port", f"{name}={port}"]
    return arguments


def test_up_status_crash_up_down(stack: Command) -> None:
    up = stack("up", *ONLY, *_ports(), "--json")
    assert up.returncode == 0, up.stderr
    code, first = stack.status()
    assert code == 0
    assert {name: part["state"] for name, part in first.items()} == {"zookeeper": "ready", "kafka": "ready"}

    again = stack("up", *ONLY)
    assert again.returncode == 0, again.stderr
    _, second = stack.status()
    assert {part["pid"] for part in second.values()} == {part["pid"] for part in first.values()}

    os.kill(int(str(first["kafka"]["pid"])), signal.SIGKILL)
    code, crashed = stack.status()
    assert code == 3
    assert (crashed["kafka"]["state"], crashed["zookeeper"]["state"]) == ("crashed", "ready")
    assert "ended by itself" in str(crashed["kafka"]["problem"])
    text = stack("status")
    assert "kafka is crashed" in text.stderr

    mended = stack("up", *ONLY)
    assert mended.returncode == 0, mended.stderr
    code, third = stack.status()
    assert code == 0
    assert third["kafka"]["pid"] != first["kafka"]["pid"]
    assert third["kafka"]["address"] == first["kafka"]["address"]

    assert "kafka" in stack("logs", "-n", "5").stdout
    down = stack("down")
    assert down.returncode == 0, down.stderr
    assert stack.left() == []
    code, stopped = stack.status()
    assert code == 3
    assert {part["state"] for part in stopped.values()} == {"stopped"}
    assert stack("down").returncode == 0


def test_down_ends_what_outlived_its_component(stack: Command) -> None:
    assert stack("up", "--only", "zookeeper", *_ports()).returncode == 0
    orphan = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(300)"],
        start_new_session=True,
        env={**os.environ, "RTOLAP_STACK_ID": str(stack.folder)},
    )
    deadline = time.monotonic() + 10
    while orphan.pid not in {process.pid for process in stack.left()}:  # until it has its environment
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert json.loads(stack("down", "--json").stdout)["swept"] == 1
    assert orphan.wait(10) == -signal.SIGTERM
    assert stack.left() == []


def test_down_stops_what_the_agent_runs(stack: Command) -> None:
    up = stack("up", "--only", "agent", *_ports(), "--json")
    assert up.returncode == 0, up.stderr
    layout = StackLayout(stack.folder)
    url = f"http://127.0.0.1:{json.loads(up.stdout)['ports']['agent']}"
    with AgentClient(url, read_secret(layout, "token")) as agent:
        agent.ensure("sleeper", AgentProcess(generation=1, argv=("rtolap", "agent", "sleep", "300")))
        deadline = time.monotonic() + 30
        while (child := agent.get("sleeper").pid) is None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert psutil.pid_exists(child)
    down = stack("down", "--json")
    assert down.returncode == 0, down.stderr
    assert json.loads(down.stdout)["swept"] == 0  # the agent itself has stopped it
    assert stack.left() == []
