"""Triggers of processes on Airflow's own runner, while the channel to its supervisor is slow or stalled."""

from __future__ import annotations

from typing import Any

import pytest
from rtolap.airflow.hooks import supervisor as asking
from rtolap.airflow.triggers import orphans
from rtolap.airflow.triggers.process import ProcessTrigger
from rtolap.base.pids import pid_lives
from rtolap.protocols.agent.client import AgentClient
from rtolap.protocols.agent.messages import ProcessSpec, WaitingTask

from tests.support.agent_harness import RunningAgent
from tests.support.triggerer_channel import SlowSupervisor, running_triggers
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("connection")

LEASE_S = 1.0  # of a test; what is waited for takes longer than several of them


def trigger_for(key: str, generation: int = 1) -> ProcessTrigger:
    return ProcessTrigger(
        process_key=key, generation=generation, dag_id="d", run_id="r", task_id=key, poll_s=0.1
    )


def spec(key: str, generation: int) -> ProcessSpec:
    return ProcessSpec(
        generation=generation,
        argv=("sh", "sleep 600"),
        lease_s=LEASE_S,
        labels=WaitingTask("d", "r", key).label(),
    )


def attended(client: AgentClient, key: str) -> bool:
    """It is renewed by a trigger: its lease is longer than at the look before."""
    before_s = client.get(key).lease_left_s
    found = []

    def look() -> bool:
        found.append(client.get(key).lease_left_s)
        return found[-1] > before_s

    until(look, timeout_s=30)
    return True


def of_tasks(supervisor: SlowSupervisor, **states: str | None) -> None:
    supervisor.task_states = {"r": dict(states)}


def test_a_cleared_receiver_lives_until_its_successor_runs_however_long_the_channel_stands_still(
    agent: RunningAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_triggers(monkeypatch) as (supervisor, _), agent.client() as client:
        old = client.ensure("cleared", spec("cleared", 1))
        supervisor.create(7, trigger_for("cleared"))
        assert attended(client, "cleared")
        of_tasks(supervisor, cleared=None)
        supervisor.cancel_and_stall(7)  # the database is locked from here on
        until(lambda: client.get("cleared").is_unattended, timeout_s=30)
        assert client.get("cleared").pid == old.pid  # the lease is over: it still runs
        new = client.ensure("cleared", spec("cleared", 2))  # by the task's worker
        assert not pid_lives(old.pid or 0)
        until(lambda: client.get("cleared").is_unattended, timeout_s=30)
        assert client.get("cleared").pid == new.pid  # though its trigger cannot be started yet
        supervisor.create(7, trigger_for("cleared", 2))  # SQLite gives the deleted trigger's number again
        supervisor.going.set()
        assert attended(client, "cleared")
        assert client.get("cleared").pid == new.pid


def test_a_trigger_of_the_same_number_starts_while_the_question_of_the_one_before_is_not_answered(
    agent: RunningAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_triggers(monkeypatch) as (supervisor, blocked_s), agent.client() as client:
        for key in ("asking", "beside"):
            client.ensure(key, spec(key, 1))
        supervisor.create(1, trigger_for("asking"))
        supervisor.create(2, trigger_for("beside"))
        assert attended(client, "asking")
        assert attended(client, "beside")
        supervisor.delay_s = 3.0  # of each question, one after the other
        of_tasks(supervisor, asking=None)
        supervisor.cancel(1)
        until(lambda: 1 in supervisor.finished, timeout_s=30)
        client.ensure("asking", spec("asking", 2))
        supervisor.create(1, trigger_for("asking", 2))
        assert attended(client, "asking")
        assert attended(client, "beside")
        assert blocked_s() < supervisor.delay_s  # the loop went on: nothing in it waits for the channel


def test_a_task_that_was_marked_failed_stops_its_process_once_the_channel_says_so(
    agent: RunningAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "ANSWER_S_MAX", 0.3)
    with running_triggers(monkeypatch) as (supervisor, _), agent.client() as client:
        client.ensure("marked", spec("marked", 1))
        supervisor.create(3, trigger_for("marked"))
        assert attended(client, "marked")
        of_tasks(supervisor, marked="failed")
        supervisor.delay_s = 1.0  # longer than a question waits: each is given up, and asked again
        supervisor.cancel(3)
        until(lambda: supervisor.asked.count("GetTaskStates") >= 2, timeout_s=60)
        assert client.get("marked").state == "RUNNING"
        supervisor.delay_s = 0.0
        until(lambda: client.get("marked").state == "STOPPED", timeout_s=60)


def test_a_kill_that_nobody_got_is_found_by_any_other_trigger(
    agent: RunningAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphans, "SWEEP_S", 0.2)
    orphans._SWEPT_S.clear()
    with running_triggers(monkeypatch) as (supervisor, _), agent.client() as client:
        of_tasks(supervisor, missed="failed", waits="deferred", queued="queued")
        for key in ("missed", "waits", "queued"):
            client.ensure(key, spec(key, 1))
        client.ensure("by-hand", ProcessSpec(generation=1, argv=("sh", "sleep 600"), lease_s=LEASE_S))
        client.ensure("beside", spec("beside", 1))
        supervisor.create(4, trigger_for("beside"))
        until(lambda: client.get("missed").state == "STOPPED", timeout_s=60)
        swept = supervisor.asked.count("GetTaskStates")
        until(lambda: supervisor.asked.count("GetTaskStates") >= swept + 4, timeout_s=60)
        states: dict[str, Any] = {status.key: status.state for status in client.processes()}
        assert {states[key] for key in ("waits", "queued", "by-hand", "beside")} == {"RUNNING"}
