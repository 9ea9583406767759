"""Loaders as tasks: which are declared, how they end, and what waits for what they have loaded."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import uvicorn
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSensorTimeout, TaskDeferred
from rtolap.airflow.completeness import CaughtUp, LoadedTableProgress, behind, complete_until_ms
from rtolap.airflow.declared import LOADERS, Completeness, RunningLoader, loader_labels
from rtolap.airflow.hooks.kafka import KafkaClusterHook
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.operators.process import ManagedProcessOperator
from rtolap.airflow.operators.services import LoaderOperator
from rtolap.airflow.outlets.loads import LOADED_TABLES, loaded_table
from rtolap.airflow.sensors.lag import LagSensor
from rtolap.airflow.sensors.loaded import LoadedSensor
from rtolap.airflow.triggers.health import processes_of
from rtolap.airflow.triggers.loaded import LoadedTrigger, PartitionsTrigger
from rtolap.airflow.triggers.process import ProcessTrigger
from rtolap.base.errors import DefinitionError, NotFound, Unavailable
from rtolap.base.metrics import Metrics
from rtolap.cli import main
from rtolap.protocols.agent.client import AgentClient, AsyncAgentClient
from rtolap.protocols.agent.messages import ProcessSpec, ProcessStatus, RestartPolicy
from rtolap.protocols.loader.messages import LoaderProcessStatus, LoaderStatus, ShareStatus, process_key
from rtolap.protocols.watermark.messages import ApplicationWatermarks, Explanation
from rtolap.servers.limits import HttpLimits
from rtolap.stack.ports import free_port
from rtolap.stored.loader.http import make_app

from tests.airflow.task_context import events_of, task_context
from tests.support.agent_harness import RunningAgent
from tests.support.waiting import patience_s, until

pytestmark = pytest.mark.usefixtures("connection")

DAY_MS = 86_400_000
DAYS_MS = 15_000 * DAY_MS  # some midnight
TIMED_OUT = ("__fail__", {"error": "Trigger timeout"})  # how Airflow resumes a task whose trigger is overdue
NAME = "hits"


def status(
    loaded: dict[int, int], ends: dict[int, int] | None, visible: dict[int, int] | None = None
) -> LoaderStatus:
    """As a loader answers; `ends` None: the broker does not tell; `visible` None: all that is loaded."""
    lag = None if ends is None else sum(end - loaded.get(part, 0) for part, end in ends.items())
    return LoaderStatus(
        job=NAME,
        state="RUNNING",
        alive=True,
        database="web",
        table="hits",
        loaded=loaded,
        visible=loaded if visible is None else visible,
        log_ends=ends or {},
        lag_records=lag,
    )


def outcome_of(loaded: dict[str, int]) -> dict[str, Any]:
    """What a task has waited for, of a loader that answers `status`."""
    known = {"topic": "", "kafka_cluster": "default", "target": "rtolap", "server": ""}
    return {"loaded": loaded, "loader": NAME, "database": "web", "table": "hits", "rows": 0, **known}


class Loader:
    """A loader's own endpoint, over a status that the test sets. `looks`: when it was asked for it."""

    def __init__(self, token: str) -> None:
        self.now = status({0: 5, 1: 5}, {0: 5, 1: 9})
        self.looks: list[float] = []
        self.port = free_port()
        app = make_app(NAME, token, Metrics("loader"), self._look, lambda wanted: None, HttpLimits())
        self._server = uvicorn.Server(uvicorn.Config(app, port=self.port, log_level="warning"))
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> Loader:
        self._thread.start()
        until(lambda: self._server.started)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(15)

    def _look(self) -> LoaderStatus:
        self.looks.append(time.time())
        return self.now


async def waits_on(waiting: asyncio.Future[Any], looks: list[Any]) -> None:
    """Until it has looked twice from now on: one look at least was answered, and has not ended the wait."""
    wanted, deadline_s = len(looks) + 2, time.monotonic() + patience_s(15)
    while len(looks) < wanted:
        assert not waiting.done()
        assert time.monotonic() < deadline_s, "nothing looks"
        await asyncio.sleep(0.01)


@pytest.fixture
def loader(agent: RunningAgent) -> Iterator[Loader]:
    """Its process on the agent does nothing; what it says comes from its endpoint."""
    complete = Completeness("logs", "day")
    with Loader(agent.token) as one, agent.client() as client:
        key = process_key(NAME)
        labels = loader_labels(RunningLoader(NAME, one.port, complete))
        generation = client.generation(key) + 1
        client.ensure(key, ProcessSpec(generation=generation, argv=("sh", "sleep 600"), labels=labels))
        yield one
        client.stop(key, generation)


# -- which are declared ----------------------------------------------------------------------------------


def test_loaders_come_from_the_variable_or_the_file_and_there_is_no_default(tmp_path: Path) -> None:
    assert LOADERS.declared(None, tmp_path) == LOADERS.declared([], tmp_path) == []
    (tmp_path / "loaders.yaml").write_text(
        "- {name: hits, port: 7051}\n"
        "- {name: logs, port: 7052, complete: {application: access, unit: hour, lateness: 10m}}\n"
    )
    assert LOADERS.declared(None, tmp_path) == [
        {"loader": "hits", "port": 7051, "complete": None},
        {
            "loader": "logs",
            "port": 7052,
            "complete": {"application": "access", "unit": "hour", "lateness_ms": 600_000},
        },
    ]
    assert [one["loader"] for one in LOADERS.declared([{"name": "b", "port": 1}], tmp_path)] == ["b"]


@pytest.mark.parametrize(
    "wrong",
    [
        [{"name": "a"}],
        [{"name": "a", "port": 0}],
        [{"name": "--option", "port": 1}],
        [{"name": "a", "port": 1}, {"name": "a", "port": 2}],
        [{"name": "a", "port": 1, "complete": {"unit": "day"}}],
        [{"name": "a", "port": 1, "complete": {"application": "l", "unit": "decade"}}],
        [{"name": "a", "port": 1, "complete": {"application": "l", "unit": "day", "lateness": "late"}}],
    ],
)
def test_a_wrong_declaration_is_refused(wrong: object, tmp_path: Path) -> None:
    with pytest.raises(DefinitionError):
        LOADERS.declared(wrong, tmp_path)


# -- as a task -------------------------------------------------------------------------------------------


def test_a_loaders_command_is_one_that_there_is_and_its_label_says_where_it_answers() -> None:
    complete = {"application": "logs", "unit": "day", "lateness_ms": 5}
    operator = LoaderOperator(task_id="t", loader=NAME, port=7051, complete=complete)
    program, group, command, *rest = operator.argv
    assert (program, group, command) == ("rtolap", "loader", "run")
    main.load("loader").commands["run"].make_context("run", rest)
    assert operator.process_key == "loader.hits"
    read = msgspec.json.decode(operator.labels["loader"], type=RunningLoader)
    assert read == RunningLoader(NAME, 7051, Completeness("logs", "day", 5))


@pytest.mark.parametrize(("code", "state"), [(0, "SUCCEEDED"), (3, "FAILED")])
def test_a_final_exit_code_ends_the_task_for_airflows_retries(
    agent: RunningAgent, code: int, state: str
) -> None:
    kept: dict[str, int] = {}
    store = SimpleNamespace(get=kept.get, set=lambda key, value, retention: kept.update({key: value}))
    ti = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=None)
    context: Any = {"task_state_store": store, "ti": ti}
    operator = ManagedProcessOperator(
        task_id="t",
        process_key=f"ends{code}",
        argv=["sh", f"echo stopped by command; exit {code}"],
        final_codes=(0, 3),
        poll_s=0.05,
    )
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute(context)

    async def first() -> Any:
        return await anext(aiter(deferred.value.trigger.run()))

    event = asyncio.run(first()).payload
    assert event["state"] == state
    with pytest.raises(AirflowException, match=f"is {state}: ended with exit code {code}\nstopped by comm"):
        operator.process_ended(context, event, **deferred.value.kwargs)
    with agent.client() as client:
        assert client.get(f"ends{code}").restarts == 0


def test_a_task_waits_with_a_loader_that_was_stopped_until_it_is_replaced(
    agent: RunningAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "loader.stopped"
    spec = ProcessSpec(generation=1, argv=("sh", "exit 0"), restart=RestartPolicy(final_codes=(0,)))
    trigger = ProcessTrigger(
        process_key=key,
        generation=1,
        dag_id="d",
        run_id="r",
        task_id="t",
        poll_s=0.05,
        waits_when_done=True,
    )

    renew = AsyncAgentClient.renew
    looks: list[ProcessStatus] = []

    async def counted(client: AsyncAgentClient, key: str, generation: int) -> ProcessStatus:
        looks.append(await renew(client, key, generation))
        return looks[-1]

    monkeypatch.setattr(AsyncAgentClient, "renew", counted)

    async def fire(client: AgentClient) -> Any:
        first = asyncio.ensure_future(anext(aiter(trigger.run())))
        deadline_s = time.monotonic() + patience_s(15)
        while (await asyncio.to_thread(client.get, key)).state != "SUCCEEDED":
            assert time.monotonic() < deadline_s
        await waits_on(first, looks)
        assert looks[-1].state == "SUCCEEDED"
        await asyncio.to_thread(client.ensure, key, msgspec.structs.replace(spec, generation=2))
        return await asyncio.wait_for(first, 15)

    with agent.client() as client:
        client.ensure(key, spec)
        assert asyncio.run(fire(client)).payload["state"] == "SUPERSEDED"


# -- waiting for what is loaded --------------------------------------------------------------------------


def test_the_log_of_a_task_says_which_process_of_a_loader_has_which_partitions() -> None:
    processes = (
        LoaderProcessStatus(
            number=0, alive=True,
            shares=(
                ShareStatus(number=0, phase="loading", partitions=(0, 2)),
                ShareStatus(number=1, phase="loading", partitions=(1,)),
            ),
        ),
        LoaderProcessStatus(number=1, alive=True),
        LoaderProcessStatus(number=2),
    )  # fmt: skip
    shared = msgspec.structs.replace(status({}, {}), processes=processes, processes_wanted=3)
    assert processes_of(shared) == (
        "process 0: partitions 0 1 2; process 1: partitions none; process 2: does not answer; 3 wanted"
    )
    assert processes_of(status({}, {})) == ""


def test_caught_up_is_what_was_in_the_topic_at_the_first_look() -> None:
    topic = CaughtUp()
    assert not topic.observe(status({0: 1}, None)), "the broker did not tell"
    assert not topic.observe(status({0: 1}, {0: 3, 1: 2}))
    assert not topic.observe(status({0: 3}, {0: 9, 1: 9}))
    assert topic.observe(status({0: 3, 1: 2}, {0: 99, 1: 99}))
    assert CaughtUp().observe(status({}, {0: 0})), "an empty topic is loaded"


def test_what_is_loaded_and_cannot_be_read_yet_is_waited_for() -> None:
    topic, offsets = CaughtUp(), {0: 3, 1: 2}
    assert not topic.observe(status(offsets, offsets, {0: 3, 1: 1}))
    assert behind(status(offsets, offsets, {0: 3, 1: 1}), offsets) == {1: 1}
    assert topic.observe(status(offsets, offsets))


def test_a_sensor_for_offsets_looks_at_once_and_waits_in_the_triggerer(loader: Loader) -> None:
    reached = LoadedSensor(task_id="t", loader=NAME, offsets={0: 5, "1": "5"})
    assert reached.execute(task_context()) == outcome_of({"0": 5, "1": 5})
    waiting = LoadedSensor(task_id="t", loader=NAME, offsets={0: 5, 1: 7}, poke_interval=0.05, timeout=60)
    with pytest.raises(TaskDeferred) as deferred:
        waiting.execute({})
    trigger = deferred.value.trigger

    async def fire() -> Any:
        events = aiter(trigger.run())
        first = asyncio.ensure_future(anext(events))
        await waits_on(first, loader.looks)
        loader.now = status({0: 5, 1: 7}, {0: 5, 1: 9})
        return await asyncio.wait_for(first, 15)

    event = json.loads(json.dumps(asyncio.run(fire()).payload))
    assert waiting.heard(task_context(), event, **deferred.value.kwargs) == outcome_of({"0": 5, "1": 7})


def test_a_sensor_waits_on_when_it_gets_what_another_one_waits_for(loader: Loader) -> None:
    other = {"waited_for": ["a.Trigger", {"loader": "other"}], "said": {"loaded": {"0": 9, "1": 9}}}
    sensor = LoadedSensor(task_id="t", loader=NAME, offsets={1: 7})
    with pytest.raises(TaskDeferred) as first:
        sensor.execute({})
    for foreign in (other, {"chosen_options": ["Approve"]}, {"process_key": "p", "generation": 1}):
        with pytest.raises(TaskDeferred) as again:
            sensor.heard({}, foreign, **first.value.kwargs)
        assert again.value.kwargs == first.value.kwargs
    loader.now = status({0: 5, 1: 7}, {0: 5, 1: 9})
    assert sensor.heard(task_context(), other, **first.value.kwargs) == outcome_of({"0": 5, "1": 7})


def test_a_sensor_for_an_instant_waits_for_what_was_in_the_topic_then(loader: Loader) -> None:
    until_ms = int(time.time() * 1000) + 400
    trigger = LoadedTrigger(loader=NAME, port=loader.port, until_ms=until_ms, poll_s=0.05)

    async def fire() -> Any:
        events = aiter(trigger.run())
        first = asyncio.ensure_future(anext(events))
        loader.now = status({0: 8, 1: 9}, {0: 9, 1: 9})
        await waits_on(first, loader.looks)
        loader.now = status({0: 9, 1: 9}, {0: 50, 1: 50})
        return await asyncio.wait_for(first, 15)

    assert asyncio.run(fire()).payload == outcome_of({"0": 9, "1": 9})
    assert loader.looks[0] * 1000 >= until_ms - 50, "the clocks of a sleep and of the day are two"


def test_a_wait_in_vain_says_how_far_the_loader_is(loader: Loader) -> None:
    sensor = LoadedSensor(task_id="t", loader=NAME, offsets={1: 7}, timeout=60, outlets=[LOADED_TABLES])
    with pytest.raises(
        AirflowSensorTimeout,
        match="waited 60 s without success: loader hits is RUNNING; partition 1 can be read up to 5 of 7",
    ):
        sensor.resume_execution(*TIMED_OUT, context={})
    loader.now = status({1: 7}, None)
    ctx = task_context()
    assert sensor.resume_execution(*TIMED_OUT, context=ctx) == outcome_of({"1": 7})
    ((asset, told),) = events_of(ctx, LOADED_TABLES)
    assert (asset, told["version"]) == (loaded_table("web", "hits").name, {"1": 7})


def test_the_lag_of_a_loader_is_told_by_the_log_of_its_cluster(
    loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str]] = []

    def log_ends(hook: KafkaClusterHook, topic: str) -> dict[int, int]:
        asked.append((hook.kafka_config_id, topic))
        return {0: 5, 1: 12}

    monkeypatch.setattr(KafkaClusterHook, "log_ends", log_ends)
    loader.now = msgspec.structs.replace(status({0: 5, 1: 9}, None), topic="clicks", kafka_cluster="far")
    assert LagSensor(task_id="t", loader=NAME, lag_max=3).execute({}) == {"lag": {"0": 0, "1": 3}}
    with pytest.raises(TaskDeferred) as deferred:
        LagSensor(task_id="t", loader=NAME, lag_max=2, poke_interval=0.05).execute({})

    async def fire() -> Any:
        first = asyncio.ensure_future(anext(aiter(deferred.value.trigger.run())))
        await waits_on(first, loader.looks)
        loader.now = msgspec.structs.replace(loader.now, loaded={0: 5, 1: 10})
        return await asyncio.wait_for(first, 15)

    assert asyncio.run(fire()).payload["said"] == {"lag": {"0": 0, "1": 2}}
    assert set(asked) == {("kafka_far", "clicks")}


def test_a_loader_that_does_not_run_is_waited_for_and_an_unknown_one_is_named(agent: RunningAgent) -> None:
    with pytest.raises(NotFound, match="no process loader"):
        LoadedSensor(task_id="t", loader="nobody", offsets={0: 1}).execute({})
    labels = loader_labels(RunningLoader("down", free_port()))
    with agent.client() as client:
        client.ensure("loader.down", ProcessSpec(generation=1, argv=("sh", "sleep 600"), labels=labels))
    sensor = LoadedSensor(task_id="t", loader="down", offsets={0: 1}, timeout=60)
    with pytest.raises(TaskDeferred):
        sensor.execute({})
    with pytest.raises(AirflowSensorTimeout, match="does not answer"):
        sensor.resume_execution(*TIMED_OUT, context={})


@pytest.mark.parametrize("asked", [{}, {"until": "2026-01-01", "offsets": {0: 1}}, {"offsets": {"a": 1}}])
def test_up_to_what_must_be_said(asked: dict[str, Any], loader: Loader) -> None:
    with pytest.raises(AirflowFailException, match="the end of the wait is not given"):
        LoadedSensor(task_id="t", loader=NAME, **asked).execute({})


# -- partitions that are complete ------------------------------------------------------------------------


class FakeCoordinator:
    """What an application says: its global low watermark, and what people have let go."""

    def __init__(self) -> None:
        self.global_ms: int | None = None
        self.approved_ms: int | None = None

    async def __aenter__(self) -> FakeCoordinator:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def application_watermarks(self, name: str) -> ApplicationWatermarks:
        if name != "logs":
            raise NotFound(f"application {name} does not exist")
        return ApplicationWatermarks(
            application=name,
            epoch=1,
            now_ms=0,
            global_ms=self.global_ms,
            approved_until_ms=self.approved_ms,
        )

    async def explain_window(self, application: str, window_end_ms: int) -> Explanation:
        may = self.global_ms is not None and self.global_ms >= window_end_ms
        return Explanation(application=application, window_end_ms=window_end_ms, may_close=may, reasons=())


def test_complete_is_what_the_watermark_has_passed_by_the_lateness_or_a_person_has_let_go() -> None:
    coordinator: Any = FakeCoordinator()
    complete = Completeness("logs", "day", lateness_ms=1000)

    def until() -> int | None:
        return asyncio.run(complete_until_ms(coordinator, complete))

    assert until() is None
    coordinator.global_ms = DAYS_MS + 999
    assert until() == DAYS_MS - DAY_MS
    coordinator.global_ms = DAYS_MS + 1000
    assert until() == DAYS_MS
    coordinator.approved_ms = DAYS_MS + 2 * DAY_MS
    assert until() == DAYS_MS + 2 * DAY_MS


def test_a_partition_is_announced_once_and_when_its_rows_are_loaded() -> None:
    progress = LoadedTableProgress()

    def look(loaded: int, end: int, until_ms: int | None) -> list[str]:
        found = progress.observe(status({0: loaded}, {0: end}), "day", until_ms)
        return [partition.name for partition in found]

    assert look(5, 5, None) == []
    assert look(5, 8, DAYS_MS) == []
    assert look(7, 20, DAYS_MS) == []
    assert look(8, 20, DAYS_MS) == ["p20110125"], "only the last one at first"
    assert look(20, 20, DAYS_MS) == []
    assert look(20, 30, DAYS_MS + 2 * DAY_MS) == []
    assert look(30, 99, DAYS_MS + 3 * DAY_MS) == ["p20110126", "p20110127"]
    assert look(99, 99, DAYS_MS + 3 * DAY_MS) == ["p20110128"]


def test_the_watcher_announces_partitions_of_the_loaders_that_run(
    loader: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    coordinator = FakeCoordinator()
    coordinator.global_ms = DAYS_MS + 5
    monkeypatch.setattr(RtolapHook, "async_coordinator", lambda _hook: coordinator)
    trigger = PartitionsTrigger(poll_s=0.05)

    async def fire() -> Any:
        events = aiter(trigger.run())
        first = asyncio.ensure_future(anext(events))
        await waits_on(first, loader.looks)  # partition 1 of the topic is loaded up to 5 of 9
        loader.now = status({0: 5, 1: 9}, {0: 5, 1: 9})
        return await asyncio.wait_for(first, 15)

    assert asyncio.run(fire()).payload == {
        "loader": NAME,
        "database": "web",
        "table": "hits",
        "partition": "p20110125",
        "start": "2011-01-25T00:00:00+00:00",
        "end": "2011-01-26T00:00:00+00:00",
    }


def test_the_watcher_goes_on_while_nobody_answers(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = FakeCoordinator()
    calls = 0

    async def sometimes(name: str) -> ApplicationWatermarks:
        nonlocal calls
        calls += 1
        if calls < 4:
            raise Unavailable("no coordinator")
        return await FakeCoordinator.application_watermarks(coordinator, name)

    monkeypatch.setattr(coordinator, "application_watermarks", sometimes)
    monkeypatch.setattr(RtolapHook, "async_coordinator", lambda _hook: coordinator)
    coordinator.global_ms = DAYS_MS
    loader.now = status({0: 5}, {0: 5})

    async def fire() -> Any:
        return await asyncio.wait_for(anext(aiter(PartitionsTrigger(poll_s=0.02).run())), 15)

    assert asyncio.run(fire()).payload["partition"] == "p20110125"
    assert calls >= 4
