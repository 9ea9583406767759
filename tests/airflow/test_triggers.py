"""Triggers round-trip through serialize(), and do their work against a real agent."""

from __future__ import annotations

import asyncio
import importlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from airflow.providers.standard.triggers import hitl
from airflow.sdk.api.datamodels._generated import HITLUser
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse
from airflow.triggers.base import BaseTrigger
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.triggers import answer
from rtolap.airflow.triggers.answer import AnswerTrigger
from rtolap.airflow.triggers.base import addressed
from rtolap.airflow.triggers.cubes import QueueTrigger, WatermarkTrigger, WindowTrigger
from rtolap.airflow.triggers.loaded import LoadedTrigger, PartitionsTrigger
from rtolap.airflow.triggers.process import ProcessTrigger
from rtolap.base.clock import ManualClock
from rtolap.base.errors import Unavailable
from rtolap.protocols.agent.client import AgentClient
from rtolap.protocols.agent.messages import ProcessSpec
from rtolap.protocols.coordinator.messages import Queue, QueueEntry
from rtolap.protocols.watermark.messages import ApplicationWatermarks, Explanation

from tests.support.agent_harness import RunningAgent, running_agent
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("connection")

NON_DEFAULT: list[BaseTrigger] = [
    ProcessTrigger(
        process_key="receiver.r7",
        generation=3,
        dag_id="d",
        run_id="r",
        task_id="t",
        map_index=4,
        one_shot=True,
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
    PartitionsTrigger(poll_s=0.5, rtolap_conn_id="other"),
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
    event = asyncio.run(first_event(trigger_for("t1", one_shot=True)))
    assert (event["state"], event["generation"]) == ("SUCCEEDED", 1)


def test_waiting_keeps_the_lease_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()

    async def wait(client: AgentClient) -> None:
        waiting = asyncio.create_task(first_event(trigger_for("t2"), timeout_s=60))
        deadline_s = time.monotonic() + 30
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


@pytest.mark.parametrize(
    ("state", "one_shot", "stopped"),
    [
        ("deferred", False, False),  # a stalled triggerer: nobody acted
        ("failed", False, True),
        ("success", False, True),
        (None, False, True),  # cleared: the next generation wants it gone
        ("scheduled", False, True),
        ("failed", True, True),
        (None, True, False),  # a cleared build is left for the next execution to adopt
        ("queued", True, False),
    ],
)
def test_a_kill_stops_the_process_only_if_its_task_has_ended(
    agent: RunningAgent, monkeypatch: pytest.MonkeyPatch, state: str | None, one_shot: bool, stopped: bool
) -> None:
    key = f"k-{state}-{one_shot}"
    trigger = trigger_for(key, one_shot=one_shot)

    async def known() -> str | None:
        return state

    monkeypatch.setattr(trigger, "task_state", known)
    with agent.client() as client:
        client.ensure(key, ProcessSpec(generation=1, argv=("sh", "sleep 60")))
        asyncio.run(trigger.on_kill())
        assert client.get(key).state == ("STOPPED" if stopped else "RUNNING")


def test_a_kill_that_is_cut_off_still_stops_the_process(
    agent: RunningAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    trigger = trigger_for("k-cut")

    async def failed() -> str:
        return "failed"

    async def scenario() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(trigger.on_kill(), timeout=0.1)
        deadline_s = time.monotonic() + 10
        while (await asyncio.to_thread(client.get, "k-cut")).state != "STOPPED":
            assert time.monotonic() < deadline_s
            await asyncio.sleep(0.05)

    monkeypatch.setattr(trigger, "task_state", failed)
    with agent.client() as client:
        script = "trap 'sleep 0.5; exit 0' TERM; touch ready; sleep 60 & wait"
        ready = Path("ready")
        client.ensure(
            "k-cut", ProcessSpec(generation=1, argv=("sh", script.replace("ready", f"{agent.folder}/ready")))
        )
        until(lambda: (agent.folder / ready).exists())
        asyncio.run(scenario())


def test_a_kill_does_not_touch_the_next_generation(
    agent: RunningAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    trigger = trigger_for("k-next", generation=1)

    async def running() -> str:
        return "running"

    monkeypatch.setattr(trigger, "task_state", running)
    with agent.client() as client:
        client.ensure("k-next", ProcessSpec(generation=2, argv=("sh", "sleep 60")))
        asyncio.run(trigger.on_kill())
        assert client.get("k-next").state == "RUNNING"


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
    for module in (hitl, answer):
        monkeypatch.setattr(module, "get_hitl_detail_content_detail", detail)
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


def refusal(status_code: int) -> AirflowRuntimeError:
    return AirflowRuntimeError(
        ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": status_code})
    )


def test_a_question_that_nobody_has_asked_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(ti_id: UUID) -> Detail:
        raise refusal(404)

    event = asyncio.run(first_event(answer_trigger(monkeypatch, missing)))
    assert (event["unasked"], UUID(event["ti_id"])) == (True, UUID(int=7))


def test_a_question_that_cannot_be_read_is_not_taken_for_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(ti_id: UUID) -> Detail:
        raise refusal(500)

    with pytest.raises(AirflowRuntimeError, match="500"):
        asyncio.run(first_event(answer_trigger(monkeypatch, broken)))
