"""Triggers round-trip through serialize(), and do their work against a real agent."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from airflow.providers.standard.triggers import hitl
from airflow.sdk.api.datamodels._generated import HITLUser
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import ErrorResponse, TaskStatesResult
from airflow.triggers.base import BaseTrigger
from rtolap.airflow.declared import receiver_labels
from rtolap.airflow.hooks import supervisor
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.triggers import orphans
from rtolap.airflow.triggers.answer import AnswerTrigger
from rtolap.airflow.triggers.base import addressed
from rtolap.airflow.triggers.cubes import QueueTrigger, WatermarkTrigger, WindowTrigger
from rtolap.airflow.triggers.health import HealthLog
from rtolap.airflow.triggers.loaded import LoadedTrigger, PartitionsTrigger
from rtolap.airflow.triggers.moves import MoveTrigger
from rtolap.airflow.triggers.orphans import settled
from rtolap.airflow.triggers.process import ProcessTrigger
from rtolap.airflow.triggers.table_versions import TableVersionTrigger
from rtolap.base.errors import Unavailable
from rtolap.protocols.agent.client import AgentClient
from rtolap.protocols.agent.messages import ProcessSpec, ProcessStatus, RestartPolicy, WaitingTask
from rtolap.protocols.coordinator.messages import Queue, QueueEntry
from rtolap.protocols.watermark.messages import ApplicationWatermarks, Explanation

from tests.support.agent_harness import RunningAgent, running_agent
from tests.support.twins.clock import ManualClock
from tests.support.waiting import patience_s

pytestmark = pytest.mark.usefixtures("connection")

NON_DEFAULT: list[BaseTrigger] = [
    ProcessTrigger(
        process_key="receiver.r7",
        generation=3,
        dag_id="d",
        run_id="r",
        task_id="t",
        map_index=4,
        poll_s=0.5,
        agent_silence_s=7.0,
        waits_when_done=True,
        rtolap_conn_id="other",
    ),
    QueueTrigger(cube="c", segment="s", poll_s=0.5, repeat_s=9.0, rtolap_conn_id="other"),
    WatermarkTrigger(cube="c", at_least_ms=5, poll_s=0.5, silence_s=9.0, rtolap_conn_id="other"),
    addressed(WatermarkTrigger(cube="c", at_least_ms=5, poll_s=0.5)),
    WindowTrigger(
        application="a", window_end_ms=5, lateness_ms=2, poll_s=0.5, silence_s=9.0, rtolap_conn_id="other"
    ),
    LoadedTrigger(loader="l", port=7051, until_ms=5, offsets={"0": 7}, poll_s=0.5, rtolap_conn_id="other"),
    MoveTrigger(cube="c", epoch=5, poll_s=0.5, rtolap_conn_id="other"),
    PartitionsTrigger(poll_s=0.5, rtolap_conn_id="other"),
    TableVersionTrigger(database="d", table="t", poll_s=0.5, rtolap_conn_id="other"),
    AnswerTrigger(
        ti_id="00000000-0000-0000-0000-000000000007",
        options=["Approve", "Reject"],
        params={
            "reason": {"value": "", "description": "why", "schema": {"type": "string"}, "source": "task"}
        },
        application="a",
        window_end_ms=5,
        lateness_ms=2,
        poll_s=0.5,
        rtolap_conn_id="other",
    ),
]


@pytest.mark.parametrize("trigger", NON_DEFAULT, ids=lambda trigger: type(trigger).__name__)
def test_a_trigger_survives_serialization(trigger: BaseTrigger) -> None:
    path, arguments = trigger.serialize()
    module, _, name = path.rpartition(".")
    again = getattr(importlib.import_module(module), name)(**json.loads(json.dumps(arguments)))
    assert again.serialize() == (path, arguments)


def trigger_for(key: str, generation: int = 1, **more: Any) -> ProcessTrigger:
    arguments = {"dag_id": "d", "run_id": "r", "task_id": "t", "poll_s": 0.05, **more}
    return ProcessTrigger(process_key=key, generation=generation, **arguments)


async def first_event(trigger: BaseTrigger, timeout_s: float = 10.0) -> Any:
    async with asyncio.timeout(timeout_s):
        async for event in trigger.run():
            return event.payload
    raise AssertionError("the trigger ended without an event")


def test_the_end_of_a_process_fires(agent: RunningAgent) -> None:
    with agent.client() as client:
        client.ensure("t1", ProcessSpec(generation=1, argv=("sh", "exit 0"), one_shot=True))
    event = asyncio.run(first_event(trigger_for("t1")))
    assert (event["state"], event["generation"]) == ("SUCCEEDED", 1)


def test_waiting_keeps_the_lease_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()

    async def wait(client: AgentClient) -> None:
        waiting = asyncio.create_task(first_event(trigger_for("t2"), timeout_s=60))
        deadline_s = time.monotonic() + patience_s(30)
        for _ in range(3):
            clock.advance_ms(6_000)
            while (await asyncio.to_thread(client.get, "t2")).lease_left_s < 10:
                assert not waiting.done()
                assert time.monotonic() < deadline_s, "nobody renews it"
        waiting.cancel()

    with running_agent(tmp_path, clock=clock) as agent, agent.client() as client:
        value = {"conn_type": "rtolap", "password": agent.token, "extra": {"agent_url": agent.url}}
        monkeypatch.setenv("AIRFLOW_CONN_RTOLAP_DEFAULT", json.dumps(value))
        client.ensure("t2", ProcessSpec(generation=1, argv=("sh", "sleep 60"), lease_s=10))
        asyncio.run(wait(client))
        assert client.get("t2").state == "RUNNING"


def test_a_replaced_generation_fires_superseded(agent: RunningAgent) -> None:
    with agent.client() as client:
        client.ensure("t3", ProcessSpec(generation=1, argv=("sh", "sleep 60")))
        client.ensure("t3", ProcessSpec(generation=2, argv=("sh", "sleep 60")))
    assert asyncio.run(first_event(trigger_for("t3")))["state"] == "SUPERSEDED"


def test_an_unknown_process_and_a_silent_agent_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asyncio.run(first_event(trigger_for("never")))["state"] == "LOST"
    value = {"conn_type": "rtolap", "password": "x", "extra": {"agent_url": "http://127.0.0.1:1"}}
    monkeypatch.setenv("AIRFLOW_CONN_RTOLAP_DEFAULT", json.dumps(value))
    event = asyncio.run(first_event(trigger_for("t", agent_silence_s=0.2)))
    assert event["state"] == "LOST"
    assert "silent" in event["reason"]


async def killed(trigger: ProcessTrigger) -> None:
    await trigger.on_kill()
    await settled()


@pytest.mark.parametrize(
    ("state", "stopped"),
    [
        ("deferred", False),  # a stalled triggerer: nobody acted
        ("failed", True),
        ("success", True),
        ("removed", True),
    ],
)
def test_a_kill_stops_the_process_only_if_its_task_has_ended(
    agent: RunningAgent, monkeypatch: pytest.MonkeyPatch, state: str | None, stopped: bool
) -> None:
    key = f"k-{state}"
    states(monkeypatch, state)
    with agent.client() as client:
        client.ensure(key, ProcessSpec(generation=1, argv=("sh", "sleep 60")))
        asyncio.run(killed(trigger_for(key)))
        assert client.get(key).state == ("STOPPED" if stopped else "RUNNING")


@pytest.mark.parametrize("before", [(), (None,), (None, "scheduled", "queued", "running")])
@pytest.mark.parametrize("then", ["deferred", "failed"])
def test_a_cleared_task_keeps_its_process_until_it_waits_again_or_is_ended(
    agent: RunningAgent, monkeypatch: pytest.MonkeyPatch, before: tuple[str | None, ...], then: str
) -> None:
    key = f"c-{len(before)}-{then}"
    asked = states(monkeypatch, *before, then)
    monkeypatch.setattr(orphans, "_PAUSE_S_MAX", 0.01)
    with agent.client() as client:
        client.ensure(key, ProcessSpec(generation=1, argv=("sh", "sleep 60")))
        asyncio.run(killed(trigger_for(key)))
        assert len(asked) == len(before) + 1
        assert client.get(key).state == ("RUNNING" if then == "deferred" else "STOPPED")


def test_a_kill_returns_at_once_and_is_carried_out_however_it_is_cut_off(
    agent: RunningAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    trigger = trigger_for("k-cut")
    answered = asyncio.Event()

    async def failed(task: WaitingTask) -> str:
        await answered.wait()
        return "failed"

    async def scenario() -> None:
        await trigger.on_kill()
        assert client.get("k-cut").state == "RUNNING"
        answered.set()
        await settled()
        assert client.get("k-cut").state == "STOPPED"

    monkeypatch.setattr(supervisor, "task_state", failed)
    with agent.client() as client:
        client.ensure("k-cut", ProcessSpec(generation=1, argv=("sh", "sleep 60")))
        asyncio.run(scenario())


def test_a_kill_does_not_touch_the_next_generation(
    agent: RunningAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = states(monkeypatch, "failed")
    with agent.client() as client:
        client.ensure("k-next", ProcessSpec(generation=2, argv=("sh", "sleep 60")))
        asyncio.run(killed(trigger_for("k-next", generation=1)))
        assert client.get("k-next").state == "RUNNING"
    assert not asked  # whoever has a successor is gone


def states(monkeypatch: pytest.MonkeyPatch, *said: str | None) -> list[WaitingTask]:
    """What Airflow says of the task, one after the other; returns the questions."""
    asked: list[WaitingTask] = []

    async def answer(task: WaitingTask) -> str | None:
        asked.append(task)
        return said[min(len(asked), len(said)) - 1]

    monkeypatch.setattr(supervisor, "task_state", answer)
    return asked


def test_the_tasks_log_follows_the_process(agent: RunningAgent, capsys: pytest.CaptureFixture[str]) -> None:
    trigger = trigger_for("t-log")
    script = "echo the disk is full; exit 4"
    restart = RestartPolicy(max=1, backoff_s=0.2)
    with agent.client() as client:
        client.ensure("t-log", ProcessSpec(generation=1, argv=("sh", script), restart=restart))
        assert asyncio.run(first_event(trigger))["state"] == "FAILED"
    said = capsys.readouterr().out
    told = [line for line in said.splitlines() if "t-log generation 1 is " in line]
    assert [line.partition(" generation 1 is ")[2].partition(":")[0] for line in told] == [
        "RUNNING",
        "BACKOFF",
        "PENDING",
        "RUNNING",
        "FAILED",
    ]
    assert "exit code 4; restart in 0.2 s" in told[1]
    assert "its last lines:\nthe disk is full" in said


def test_the_tasks_log_has_each_change_of_a_receivers_health_once(
    agent: RunningAgent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    said = [[], ["HEALTHY"], ["HEALTHY"], Unavailable("no leader"), ["SUSPECT"]]

    class Coordinator:
        async def __aenter__(self) -> Coordinator:
            return self

        async def __aexit__(self, *_: object) -> None:
            return None

        async def receivers(self) -> list[Any]:
            now = said.pop(0)
            if isinstance(now, Unavailable):
                raise now
            return [SimpleNamespace(receiver_id="r9", health=health, reason="") for health in now]

    async def looks() -> None:
        health = HealthLog(RtolapHook(), logging.getLogger("task"))
        status = ProcessStatus(key="receiver.r9", generation=1, state="RUNNING", labels=receiver_labels("r9"))
        while said:
            await health.look(status)

    monkeypatch.setattr(RtolapHook, "async_coordinator", lambda _hook: Coordinator())
    monkeypatch.setattr("rtolap.airflow.triggers.health.LOOK_S", 0.0)
    with caplog.at_level("INFO", logger="task"):
        asyncio.run(looks())
    assert [record.getMessage().partition(": ")[2] for record in caplog.records if record.name == "task"] == [
        "not registered yet",
        "HEALTHY",
        "health unknown: no leader",
        "SUSPECT",
    ]


def entry(cube: str, segment: str, **more: Any) -> QueueEntry:
    return QueueEntry(
        **{
            "cube": cube,
            "segment": segment,
            "start_ms": 0,
            "end_ms": 1,
            "version": 1,
            "parts": 1,
            "events": 1,
            **more,
        }
    )


def test_the_queue_trigger_looks_at_what_it_was_asked_for() -> None:
    queue = Queue(entries=(entry("a", "s1"), entry("a", "s2"), entry("b", "s1")))
    assert len(QueueTrigger().wanted(queue)) == 3
    assert QueueTrigger(cube="a").wanted(queue) == {("a", "s1", 1), ("a", "s2", 1)}
    assert QueueTrigger(cube="a", segment="s2").wanted(queue) == {("a", "s2", 1)}


class FakeExplanations:
    """Says in turn what it was given; an error is raised, and the last one stays."""

    def __init__(self, *said: bool | Unavailable) -> None:
        self.said = list(said)
        self.asked = 0

    async def __aenter__(self) -> FakeExplanations:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def explain_window(self, application: str, window_end_ms: int) -> Explanation:
        self.asked += 1
        found = self.said.pop(0) if len(self.said) > 1 else self.said[0]
        if isinstance(found, Unavailable):
            raise found
        return Explanation(application=application, window_end_ms=window_end_ms, may_close=found)

    async def application_watermarks(self, name: str) -> ApplicationWatermarks:
        return ApplicationWatermarks(application=name, epoch=1, now_ms=0)


def explanations(monkeypatch: pytest.MonkeyPatch, *said: bool | Unavailable) -> FakeExplanations:
    fake = FakeExplanations(*said)
    monkeypatch.setattr(RtolapHook, "async_coordinator", lambda _hook: fake)
    return fake


def window_trigger(**more: Any) -> WindowTrigger:
    return WindowTrigger(**{"application": "a", "window_end_ms": 5, "poll_s": 0.01, **more})


def test_a_window_fires_when_it_may_close_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = explanations(monkeypatch, False, Unavailable("no leader"), False, True)
    event = asyncio.run(first_event(window_trigger()))
    assert (event["explanation"]["may_close"], fake.asked) == (True, 4)


def test_a_coordinator_that_stays_silent_is_told_unless_nobody_wants_to_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    explanations(monkeypatch, Unavailable("no leader"))
    assert "no leader" in asyncio.run(first_event(window_trigger(silence_s=0.05)))["error"]
    with pytest.raises(TimeoutError):
        asyncio.run(first_event(window_trigger(silence_s=None), timeout_s=0.3))


class Detail:
    """What Airflow keeps of a question."""

    params_input: dict[str, str] = {"reason": "early"}  # noqa: RUF012 - as Airflow's model declares it
    chosen_options = ("Approve",)
    responded_at = None
    responded_by_user = HITLUser(id="7", name="ada")

    def __init__(self, received: bool) -> None:
        self.response_received = received


def answer_trigger(monkeypatch: pytest.MonkeyPatch, detail: Callable[..., Detail]) -> AnswerTrigger:
    """`detail`: what Airflow says of the question."""

    class Comms:
        async def asend(self, message: Any) -> Detail:
            return detail(message.ti_id)

    monkeypatch.setattr(hitl, "get_hitl_detail_content_detail", detail)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", Comms(), raising=False)
    (waiting,) = [trigger for trigger in NON_DEFAULT if isinstance(trigger, AnswerTrigger)]
    return AnswerTrigger(
        **{**waiting.serialize()[1], "poll_s": 0.01, "rtolap_conn_id": "rtolap_default"},
    )


@pytest.mark.parametrize("comes", ["answer", "window"])
def test_a_question_ends_with_its_answer_or_with_its_window(
    monkeypatch: pytest.MonkeyPatch, comes: str
) -> None:
    """The answer: one that was given before the task began to wait."""
    explanations(monkeypatch, False, comes == "window")
    event = asyncio.run(first_event(answer_trigger(monkeypatch, lambda ti_id: Detail(comes == "answer"))))
    if comes == "window":
        assert event["explanation"]["may_close"]
    else:
        assert (event["chosen_options"], event["responded_by_user"]["name"]) == (["Approve"], "ada")
        assert event["params_input"] == {"reason": "early"}


def refusal(status_code: int | None) -> AirflowRuntimeError:
    return AirflowRuntimeError(
        ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": status_code})
    )


def test_a_question_that_nobody_has_asked_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(ti_id: UUID) -> Detail:
        raise refusal(404)

    event = asyncio.run(first_event(answer_trigger(monkeypatch, missing)))
    assert (event["unasked"], UUID(event["ti_id"])) == (True, UUID(int=7))


def test_a_question_that_cannot_be_read_is_asked_again_and_not_taken_for_unasked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    codes = [500, None, 404]

    def broken(ti_id: UUID) -> Detail:
        raise refusal(codes.pop(0))

    assert asyncio.run(first_event(answer_trigger(monkeypatch, broken)))["unasked"]
    assert not codes


def test_a_connection_that_cannot_be_read_is_not_taken_for_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's own lookup says "not defined" of both."""
    said = [ErrorType.API_SERVER_ERROR]

    class Comms:
        async def asend(self, message: Any) -> ErrorResponse:
            return ErrorResponse(error=said[-1])

    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", Comms(), raising=False)
    monkeypatch.delenv("AIRFLOW_CONN_RTOLAP_DEFAULT")
    for error in (ErrorType.API_SERVER_ERROR, ErrorType.GENERIC_ERROR):
        said.append(error)
        with pytest.raises(Unavailable, match="rtolap_default"):
            asyncio.run(supervisor.connection("rtolap_default"))
    said.append(ErrorType.CONNECTION_NOT_FOUND)
    assert asyncio.run(supervisor.connection("rtolap_default")) is None


def test_a_question_that_is_not_answered_in_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Comms:
        async def asend(self, message: Any) -> Any:
            await asyncio.Event().wait()

    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", Comms(), raising=False)
    monkeypatch.setattr(supervisor, "ANSWER_S_MAX", 0.05)
    monkeypatch.delenv("AIRFLOW_CONN_RTOLAP_DEFAULT")
    task = WaitingTask("d", "r", "t", 3)
    for question in (
        supervisor.task_state(task),
        supervisor.connection("x"),
        supervisor.has_question(UUID(int=7)),
    ):
        with pytest.raises(Unavailable, match=r"within 0\.05 s"):
            asyncio.run(question)


@pytest.mark.parametrize("map_index", [-1, 3])
def test_the_state_of_a_task_is_asked_by_its_name(monkeypatch: pytest.MonkeyPatch, map_index: int) -> None:
    class Comms:
        async def asend(self, message: Any) -> TaskStatesResult:
            assert (message.dag_id, message.run_ids, message.task_ids) == ("d", ["r"], ["t"])
            assert message.map_index == (map_index if map_index >= 0 else None)
            return TaskStatesResult(task_states={"r": {"t": "queued", "t_3": "failed"}})

    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", Comms(), raising=False)
    state = asyncio.run(supervisor.task_state(WaitingTask("d", "r", "t", map_index)))
    assert state == ("failed" if map_index >= 0 else "queued")
