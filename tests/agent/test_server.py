"""The agent as the process that the stack and the image start: how it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from rtolap.base.errors import Unavailable
from rtolap.base.pids import lives
from rtolap.protocols.agent.client import AgentClient
from rtolap.protocols.agent.messages import ProcessSpec
from rtolap.stack.ports import free_port

from tests.support.scrape import scrape
from tests.support.waiting import result_of, until

DEADLINE_S = 30.0
TOKEN = "t"
SLEEPER = ("rtolap", "agent", "sleep", "--seconds", "300")


class Agent:
    """A folder and port, lived in by one `rtolap agent serve` after the other."""

    def __init__(self, folder: Path) -> None:
        (folder / "token").write_text(TOKEN)
        port = free_port()
        self.folder = folder
        self.url = f"http://127.0.0.1:{port}"
        self.client = AgentClient(self.url, TOKEN)
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RTOLAP_")},
            "RTOLAP_DATA_DIR": str(folder),
            "RTOLAP_TOKEN_FILE": str(folder / "token"),
            "RTOLAP_AGENT_PORT": str(port),
        }
        self._lives: list[subprocess.Popen[str]] = []

    def serve(self, *options: str, **settings: str) -> subprocess.Popen[str]:
        """Returns once it answers."""
        process = subprocess.Popen(
            [sys.executable, "-m", "rtolap.cli.main", "agent", "serve", "--jobs-dir", ".", *options],
            env=self._environment | settings,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lives.append(process)

        def ask() -> None:
            assert process.poll() is None, process.communicate()[0]
            self.client.processes()

        result_of(ask, Unavailable, timeout_s=DEADLINE_S, poll_s=0.05)
        return process

    def sleeper(self, stop_grace_s: float = 20) -> psutil.Process:
        spec = ProcessSpec(generation=1, argv=SLEEPER, stop_grace_s=stop_grace_s)
        pid = self.client.ensure("sleeper", spec).pid
        assert pid is not None
        return psutil.Process(pid)

    def end(self) -> None:
        for process in self._lives:
            if process.poll() is None:
                self.client.shutdown(stop_processes=True)
                process.communicate(timeout=DEADLINE_S)
        self.client.close()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path)
    yield made
    made.end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_processes_where_they_are_to_end_with_the_agent(
    agent: Agent, number: signal.Signals
) -> None:
    process = agent.serve("--stop-on-exit")
    sleeper = agent.sleeper()
    process.send_signal(number)
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, said
    assert "stopping all processes" in said
    assert "agent ended" in said
    assert "Traceback" not in said
    assert not lives(sleeper)
    assert '"STOPPED"' in (agent.folder / "agent" / "state.json").read_text()


def test_after_a_signal_the_processes_live_on_and_the_next_agent_adopts_them(agent: Agent) -> None:
    process = agent.serve()
    sleeper = agent.sleeper()
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, said
    assert "agent ended" in said
    assert lives(sleeper)
    agent.serve()
    adopted = scrape(agent.url, TOKEN)
    assert adopted("rtolap_agent_processes", kind="sleeper", state="RUNNING") == 1
    assert agent.sleeper().pid == sleeper.pid
    assert agent.client.stop("sleeper", 1).state == "STOPPED"
    stopped = scrape(agent.url, TOKEN)
    assert stopped("rtolap_agent_processes", kind="sleeper", state="STOPPED") == 1
    assert stopped("rtolap_agent_process_events_total", kind="sleeper", event="GONE") == 1
    assert stopped("rtolap_agent_http_requests_total", method="DELETE", status="200") == 1
    assert not lives(sleeper)


def test_a_signal_during_a_slow_stop_does_not_cut_it_short(agent: Agent) -> None:
    """Whoever ends the agent may be impatient; its processes are still ended in order."""
    process = agent.serve("--stop-on-exit")
    sleeper = agent.sleeper(stop_grace_s=2)
    sleeper.suspend()  # deaf to SIGTERM, so that only the grace time's end kills it
    process.send_signal(signal.SIGTERM)
    state = agent.folder / "agent" / "state.json"
    until(lambda: '"STOPPING"' in state.read_text())
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, said
    assert not lives(sleeper)


def test_the_limits_of_http_in_the_environment_are_those_of_the_agent(agent: Agent) -> None:
    agent.serve(RTOLAP_HTTP_HEAD_TIMEOUT_S="0.2")
    address = agent.url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1])), timeout=DEADLINE_S) as silent:
        assert silent.recv(12) == b"HTTP/1.1 408", "a connection without a head is cut off"
