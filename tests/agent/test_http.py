"""The REST endpoint and its client, over a real socket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rtolap.base.errors import DefinitionError, NotFound, Refused, Unauthorized, Unavailable
from rtolap.protocols.agent.client import AgentClient
from rtolap.protocols.agent.messages import ProcessSpec

from tests.support import http_calls
from tests.support.agent_harness import RunningAgent, running_agent
from tests.support.waiting import until


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningAgent]:
    with running_agent(tmp_path_factory.mktemp("agent")) as running:
        yield running


def test_a_process_from_start_to_stop(agent: RunningAgent) -> None:
    with agent.client() as client:
        started = client.ensure("s1", ProcessSpec(generation=1, argv=("sh", "echo hello; exec sleep 60")))
        assert started.state == "RUNNING"
        assert client.renew("s1", 1).lease_left_s > 100
        until(lambda: client.log("s1") == "hello\n")
        assert client.get("s1").pid == started.pid
        assert client.stop("s1", 1).state == "STOPPED"
        assert [status.key for status in client.processes() if status.is_live] == []


def test_errors_arrive_as_what_they_are(agent: RunningAgent) -> None:
    with agent.client() as client:
        client.ensure("s2", ProcessSpec(generation=3, argv=("sh", "sleep 60")))
        with pytest.raises(Refused, match="above 3"):
            client.ensure("s2", ProcessSpec(generation=2, argv=("sh", "sleep 60")))
        with pytest.raises(NotFound):
            client.get("nobody")
        with pytest.raises(DefinitionError, match="allow-list"):
            client.ensure("s3", ProcessSpec(generation=1, argv=("rm", "-rf", "x")))
        with pytest.raises(DefinitionError, match="process key"):
            client.get("../../etc/passwd")


def test_the_token_is_wanted_everywhere_but_for_health(agent: RunningAgent) -> None:
    with AgentClient(agent.url, "wrong") as client, pytest.raises(Unauthorized):
        client.processes()
    assert http_calls.get(f"{agent.url}/api/v1/processes").status_code == 401
    assert http_calls.put(f"{agent.url}/api/v1/processes/x", content=b"{}").status_code == 401
    assert http_calls.post(f"{agent.url}/api/v1/shutdown", content=b"{}").status_code == 401
    assert http_calls.get(f"{agent.url}/metrics").status_code == 401
    assert http_calls.get(f"{agent.url}/health").status_code == 200
    assert http_calls.get(f"{agent.url}/openapi.json").status_code == 401


def test_environment_values_do_not_come_back(agent: RunningAgent) -> None:
    with agent.client() as client:
        client.ensure("s4", ProcessSpec(generation=1, argv=("sh", "sleep 60"), env={"AWS_REGION": "hidden"}))
        answer = http_calls.get(
            f"{agent.url}/api/v1/processes/s4", headers={"authorization": f"Bearer {agent.token}"}
        ).text
    assert "hidden" not in answer
    assert (agent.folder / "state.json").stat().st_mode & 0o077 == 0


def test_an_agent_that_is_not_there_is_unavailable() -> None:
    with AgentClient("http://127.0.0.1:1", "x") as client, pytest.raises(Unavailable, match="agent serve"):
        client.processes()


def test_shutdown_stops_the_processes(tmp_path: Path) -> None:
    with running_agent(tmp_path) as agent, agent.client() as client:
        client.ensure("s5", ProcessSpec(generation=1, argv=("sh", "sleep 60")))
        client.shutdown()
    assert '"STOPPED"' in (tmp_path / "state.json").read_text()
