"""`rtolap loader` against real servers: declare, run by the agent's command, look, pause, stop, reset."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
from rtolap.cli.main import app
from typer.testing import CliRunner, Result

from tests.support.agent_harness import running_agent
from tests.support.cubes.services import wait_for
from tests.support.loader.loader_world import DATABASE, Around, LoaderWorld
from tests.support.stored.stream_load_cluster import TOKEN

RECORDS = 500


@pytest.fixture
def world(around: Around, tmp_path: Path, unique_name: str, monkeypatch: pytest.MonkeyPatch) -> LoaderWorld:
    for name, value in {
        **around.env,
        "RTOLAP_KAFKA": around.kafka.address,
        "RTOLAP_TOKEN_FILE": str(around.cluster.folder / "token"),
        "RTOLAP_DATA_DIR": str(tmp_path),
        "RTOLAP_AGENT_PORT": "9",
    }.items():
        monkeypatch.setenv(name, value)
    return LoaderWorld(f"c_{unique_name[-8:]}", "duplicate", around, tmp_path)


def rtolap(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["loader", *arguments])


def told(*arguments: str) -> dict[str, object]:
    result = rtolap(*arguments, "--json")
    assert result.exit_code == 0, f"{result.output}\n{result.exception!r}"
    return dict(json.loads(result.stdout))


def page_of_broker(page: str) -> list[dict[str, Any]]:
    """What `rtolap fleet clients` reads of a process whose consumers have had answers."""
    answer = CliRunner().invoke(app, ["fleet", "clients", "--endpoint", page, "--json"])
    document = json.loads(answer.stdout)
    assert document["missing"] == [], answer.output
    return [client for client in document["clients"] if client["requests"] > 0]


def test_a_loader_is_managed_by_command(world: LoaderWorld, tmp_path: Path) -> None:
    chooser = random.Random(1)
    try:
        world.produce(chooser, RECORDS)
        before = told("status", world.name)["loaders"][0]  # type: ignore[index]
        assert (before["alive"], before["state"], before["loaded"]) == (False, "RUNNING", {})
        shown = rtolap("status", world.name).stdout
        assert f"{world.name}: no process of it answers" in shown
        assert f"`rtolap agent log loader.{world.name}`" in shown
        world.process.start()
        world.wait_loaded()
        world.wait_until(lambda it: it.lag_records == 0 and it.alive)
        rows = json.loads(rtolap("lag", world.name, "--json").stdout)
        assert [row["lag"] for row in rows] == [0, 0]
        assert sum(row["loaded"] for row in rows) == RECORDS
        page = f"http://{world.process.address}/metrics"
        wait_for("librdkafka has told of its broker", lambda: bool(page_of_broker(page)), 60)
        client = page_of_broker(page)[0]
        assert (client["service"], client["topic"], client["broker"]) == ("loader", world.loader.topic, 1)
        assert 0 < client["rtt_p50_ms"] <= client["rtt_p99_ms"]
        assert client["lag_p99"] == 0

        assert told("pause", world.name)["state"] == "PAUSED"
        world.wait_until(lambda it: it.phase == "paused")
        world.produce(chooser, RECORDS)
        assert world.status().lag_records == RECORDS
        told("resume", world.name)
        world.wait_loaded()

        stopped = told("stop", world.name)
        assert (stopped["state"], stopped["alive"]) == ("STOPPED", False)
        assert stopped["reason"] == "stopped by command"
        assert f"{world.name}: stopped by command" in rtolap("status", world.name).stdout
        assert len(world.rows()) == 2 * RECORDS

        started = rtolap("start", world.name)
        assert started.exit_code != 0
        assert "no agent answers" in str(started.exception)

        for batch in ("0", "999999"):  # the origin was never sent, and there is no such other
            refused = rtolap("settle", world.name, batch, "--loaded")
            assert refused.exit_code != 0
            assert "has nothing to settle" in str(refused.exception)

        recreated = told("reset", world.name, "--go-on", "--yes")
        assert (recreated["incarnation"], recreated["state"], recreated["loaded"]) == (2, "STOPPED", {})
        both = ("--at", "0=0,1=0", "--go-on")
        for wrong in (("--at", "nonsense"), ("--at", "0=0"), ("--at", "0=0,1=0,7=0"), both):
            assert rtolap("reset", world.name, *wrong, "--yes").exit_code != 0
        assert told("reset", world.name, "--at", "0=0,1=0", "--yes")["incarnation"] == 3
    finally:
        world.close()


def test_an_agent_runs_a_loader_by_command_and_again_after_a_restart(
    world: LoaderWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chooser = random.Random(2)
    with running_agent(tmp_path / "agent", token=TOKEN) as agent:
        monkeypatch.setenv("RTOLAP_AGENT_PORT", agent.url.rpartition(":")[2])
        try:
            told("stop", world.name)
            world.produce(chooser, RECORDS)
            started = told("start", world.name, "--wait-s", "60")
            assert (started["state"], started["alive"]) == ("RUNNING", True)
            world.wait_loaded()

            again = told("restart", world.name, "--wait-s", "60")
            assert (again["state"], again["alive"], again["incarnation"]) == ("RUNNING", True, 1)
            assert again["owner"] != started["owner"]
            with agent.client() as client:
                assert client.generation(f"loader.{world.name}") == 2
            world.produce(chooser, RECORDS)
            world.wait_loaded()
            assert len(world.rows()) == 2 * RECORDS

            stopped = told("stop", world.name)
            assert (stopped["state"], stopped["alive"]) == ("STOPPED", False)
        finally:
            world.close()


def test_a_loader_that_is_stopped_while_its_process_is_gone_is_not_brought_back_by_the_agent(
    world: LoaderWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = f"loader.{world.name}"
    with running_agent(tmp_path / "agent", token=TOKEN) as agent, agent.client() as client:
        monkeypatch.setenv("RTOLAP_AGENT_PORT", agent.url.rpartition(":")[2])
        try:
            told("start", world.name, "--wait-s", "60")
            pid = client.get(key).pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            told("stop", world.name)
            wait_for("the agent has started it again", lambda: client.get(key).restarts > 0, 60)
            wait_for("it has looked and ended", lambda: client.get(key).state == "SUCCEEDED", 60)
            assert told("status", world.name)["loaders"][0]["state"] == "STOPPED"  # type: ignore[index]

            started = told("start", world.name, "--wait-s", "60")
            assert (started["state"], started["alive"]) == ("RUNNING", True)
            told("stop", world.name)
        finally:
            world.close()


def test_a_loader_that_was_killed_before_it_had_started_its_job_starts_it_at_the_next_try(
    world: LoaderWorld, around: Around, tmp_path: Path
) -> None:
    """The agent brings it back after a crash: the stop that it finds is an earlier one than its task's."""
    marks = {"RTOLAP_AGENT_KEY": "loader.x", "RTOLAP_AGENT_GENERATION": "7", "RTOLAP_AGENT_RESTARTS": "1"}
    killed = LoaderWorld(f"{world.name}_k", "duplicate", around, tmp_path / "killed", env=marks)
    try:
        told("stop", killed.name)
        killed.produce(random.Random(3), RECORDS)
        killed.process.start()
        killed.wait_loaded()
        assert len(killed.rows()) == RECORDS
        assert killed.access.jobs.get(killed.name).started_by == "loader.x generation 7"
    finally:
        killed.close()
        world.close()


def test_a_definition_is_declared_once_and_followed_when_it_changes(
    world: LoaderWorld, tmp_path: Path
) -> None:
    name = f"{world.name}_b"
    definition = tmp_path / "loader.yaml"
    text = f"kind: loader\nname: {name}\ntopic: {world.name}\ndatabase: {DATABASE}\ntable: {world.name}\n"
    try:
        definition.write_text(text)
        for _ in range(2):
            (found,) = told("create", str(definition))["loaders"]  # type: ignore[misc]
            assert (found["job"], found["state"], found["incarnation"]) == (name, "STOPPED", 1)
        definition.write_text(text + "parallel: 4\n")
        told("create", str(definition))
        assert '"parallel":4' in world.access.jobs.get(name).config
        definition.write_text(text.replace(f"topic: {world.name}", "topic: another"))
        assert "is there already" in str(rtolap("create", str(definition)).exception)
    finally:
        world.close()
