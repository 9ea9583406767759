"""Operators against a real agent: generations across executions, adoption, builds and their promotion."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred
from airflow.sdk.execution_time.context import OutletEventAccessors
from rtolap.agent.commands import Resolver
from rtolap.airflow.declared import RECEIVER_BOUNDS
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.operators.build import SparkBuildOperator
from rtolap.airflow.operators.process import ManagedProcessOperator
from rtolap.airflow.operators.services import ReceiverOperator
from rtolap.airflow.ready_assets import READY_SEGMENTS
from rtolap.base.errors import DefinitionError, NotYet, Refused
from rtolap.cli import main
from rtolap.protocols.coordinator.messages import (
    BuildInfo,
    BuildSpecMessage,
    CompletenessInfo,
    Queue,
    QueueEntry,
    SegmentInfo,
)
from rtolap.protocols.watermark.messages import ApplicationWatermarks, Explanation

from tests.airflow.task_context import Recorded, task_context
from tests.support.agent_harness import RunningAgent

pytestmark = pytest.mark.usefixtures("connection")


class SparkScript:
    """Stands in for spark-submit: a shell script that tests set."""

    script = "exit 0"

    def __call__(self, arguments: Sequence[str]) -> tuple[str, ...]:
        return ("/bin/sh", "-c", self.script, *arguments[-1:])


SPARK = SparkScript()


class FakeCoordinator:
    """The coordinator's answers to an operator, from two dictionaries."""

    def __init__(self, *segments: str) -> None:
        self.waiting = list(segments)
        self.newest: dict[str, str] = {}
        self.promoted: list[str] = []
        self.purged: set[str] = set()
        self.failed: dict[str, str] = {}
        self.attempts = 0
        self.refusals = 0
        self.forced: set[str] = set()  # closed before their window may close
        self.approved_until_ms: int | None = None

    def __enter__(self) -> FakeCoordinator:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def queue(self) -> Queue:
        fields: dict[str, Any] = {"start_ms": 0, "end_ms": 1, "version": 1, "parts": 1, "events": 1}
        known = CompletenessInfo(application="logs", window_end_ms=1, closed_by="forced")
        return Queue(
            entries=tuple(
                QueueEntry(
                    cube="c",
                    segment=name,
                    waits_for=before,
                    completeness=known if name in self.forced else None,
                    **fields,
                )
                for before, name in zip((None, *self.waiting), self.waiting, strict=False)
            )
        )

    def explain_window(self, application: str, window_end_ms: int) -> Explanation:
        return Explanation(
            application=application, window_end_ms=window_end_ms, may_close=False, reasons=("h1 is behind",)
        )

    def application_watermarks(self, name: str) -> ApplicationWatermarks:
        return ApplicationWatermarks(
            application=name, epoch=1, now_ms=0, approved_until_ms=self.approved_until_ms
        )

    def segments(self, cube: str, *, state: str) -> list[SegmentInfo]:
        assert state == "IMMUTABLE"
        return []

    def start_build(self, cube: str, segment: str) -> BuildSpecMessage:
        self.attempts += 1
        self.newest[segment] = f"b{self.attempts}"
        fields: dict[str, Any] = {"cube": cube, "segment": segment, "build_id": self.newest[segment]}
        return BuildSpecMessage.model_construct(version=1, **fields)

    def promote(self, cube: str, segment: str, build_id: str) -> None:
        if self.newest[segment] != build_id:
            raise Refused("a later attempt replaced this one")
        if self.refusals:
            self.refusals -= 1
            raise NotYet("an earlier segment comes first")
        if segment not in self.waiting:
            return  # it is promoted already
        self.waiting.remove(segment)
        self.promoted.append(segment)

    def fail_build(self, cube: str, segment: str, build_id: str, error: str) -> None:
        self.failed[segment] = error

    def segment(self, cube: str, segment: str) -> SegmentInfo:
        state = "REMOTE_PERSISTED" if segment in self.waiting else "READY"
        build = BuildInfo(build_id=self.newest[segment], version=1, started_ms=0, location="")
        return SegmentInfo(
            cube=cube,
            segment=segment,
            start_ms=0,
            end_ms=1,
            state="PURGED" if segment in self.purged else state,
            version=self.promoted.count(segment),
            events=7,
            build=build,
        )


@pytest.fixture(scope="module")
def programs() -> Mapping[str, Resolver]:
    return {"spark-submit": SPARK}


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> FakeCoordinator:
    fake = FakeCoordinator("s1", "s2", "s3")
    monkeypatch.setattr(RtolapHook, "coordinator", lambda _hook: fake)
    monkeypatch.setattr("rtolap.airflow.operators.build.PROMOTE_POLL_S", 0.05)
    return fake


def deferred(call: Callable[[], Any]) -> Any:
    with pytest.raises(TaskDeferred) as caught:
        call()
    return caught.value


def event_of(deferral: Any) -> Any:
    """Run the trigger until it fires."""

    async def first() -> Any:
        async with asyncio.timeout(20):
            async for event in deferral.trigger.run():
                return event.payload
        raise AssertionError("the trigger ended without an event")

    deferral.trigger.poll_s = 0.05
    return asyncio.run(first())


def resumed(operator: ManagedProcessOperator, ctx: Any, deferral: Any, event: Any = None) -> Any:
    """What the operator does once the trigger of its deferral has fired, or this event has come."""
    return operator.process_ended(ctx, event or event_of(deferral), **deferral.kwargs)


def process(key: str, script: str, **more: Any) -> ManagedProcessOperator:
    return ManagedProcessOperator(task_id="t", argv=["sh", script], process_key=key, poll_s=0.05, **more)


def test_each_execution_raises_the_generation_and_replaces_the_process(agent: RunningAgent) -> None:
    operator, ctx = process("p1", "sleep 60"), task_context()
    first = deferred(lambda: operator.execute(ctx))
    assert first.method_name == "process_ended"
    with agent.client() as client:
        old = client.get("p1")
        second = deferred(lambda: operator.execute(ctx))
        new = client.get("p1")
    assert (first.trigger.generation, second.trigger.generation) == (1, 2)
    assert ctx["task_state_store"]["generation"] == 2
    assert new.pid != old.pid


def test_a_run_without_memory_still_takes_the_process_over(agent: RunningAgent) -> None:
    deferred(lambda: process("p2", "sleep 60").execute(task_context()))
    taken = deferred(lambda: process("p2", "sleep 60").execute(task_context()))
    assert taken.trigger.generation == 2


def test_a_long_running_process_that_ends_has_failed(agent: RunningAgent) -> None:
    operator, ctx = process("p3", "echo lost the topic; exit 0", restarts_max=0), task_context()
    waiting = deferred(lambda: operator.execute(ctx))
    with pytest.raises(AirflowException, match=r"(?s)FAILED.*lost the topic"):
        resumed(operator, ctx, waiting)


def test_a_task_whose_process_was_taken_over_does_not_fight_back(agent: RunningAgent) -> None:
    operator, ctx = process("p4", "sleep 60"), task_context()
    waiting = deferred(lambda: operator.execute(ctx))
    deferred(lambda: process("p4", "sleep 60").execute(task_context()))
    with pytest.raises(AirflowFailException, match="replaced"):
        resumed(operator, ctx, waiting)


def test_a_cleared_task_is_not_ended_by_what_the_trigger_of_its_former_execution_says(
    agent: RunningAgent,
) -> None:
    operator, ctx = process("p8", "sleep 60"), task_context()
    former = deferred(lambda: operator.execute(ctx))
    waiting = deferred(lambda: operator.execute(ctx))
    said = event_of(former)
    assert said["state"] == "SUPERSEDED"
    again = deferred(lambda: resumed(operator, ctx, waiting, said))
    assert again.trigger.generation == waiting.trigger.generation == 2
    with agent.client() as client:
        assert client.get("p8").state == "RUNNING"


def test_a_one_shot_returns_its_exit_code_and_is_acknowledged(agent: RunningAgent) -> None:
    operator, ctx = process("p5", "exit 0", one_shot=True), task_context()
    assert resumed(operator, ctx, deferred(lambda: operator.execute(ctx))) == 0
    with agent.client() as client:
        assert "p5" not in [status.key for status in client.processes()]


def test_a_one_shot_that_is_executed_again_is_adopted(agent: RunningAgent) -> None:
    operator, ctx = process("p6", "sleep 60", one_shot=True), task_context()
    first = deferred(lambda: operator.execute(ctx))
    again = deferred(lambda: operator.execute(ctx))
    assert first.trigger.generation == again.trigger.generation == 1


def test_a_failed_one_shot_is_started_anew_by_the_retry(agent: RunningAgent) -> None:
    operator, ctx = process("p7", "exit 5", one_shot=True), task_context()
    waiting = deferred(lambda: operator.execute(ctx))
    with pytest.raises(AirflowException, match="exit code 5"):
        resumed(operator, ctx, waiting)
    assert deferred(lambda: operator.execute(ctx)).trigger.generation == 2


def test_a_receiver_is_a_command_of_the_allow_list() -> None:
    operator = ReceiverOperator(task_id="t", receiver_id="r0", replica_set="rs-0", port=7080)
    assert shlex.join(operator.argv) == "rtolap receiver serve --id r0 --replica-set rs-0 --port 7080"
    assert operator.process_key == "receiver.r0"


def test_bounds_of_a_receiver_are_options_that_its_command_knows() -> None:
    bounds = dict.fromkeys(RECEIVER_BOUNDS, 1 << 20)
    operator = ReceiverOperator(task_id="t", receiver_id="r0", replica_set="rs-0", bounds=bounds)
    options = [word for word in operator.argv if word.startswith("--")]
    serve = main.load("receiver").commands["serve"]
    assert set(options) <= {name for option in serve.params for name in option.opts}
    assert len(options) == 3 + len(RECEIVER_BOUNDS)


def build(**more: Any) -> SparkBuildOperator:
    return SparkBuildOperator(
        task_id="t", cube="c", segments_max=2, poll_s=0.05, spark_master="local[1]", **more
    )


def drain(operator: SparkBuildOperator, ctx: Any) -> list[str]:
    """Execute, then follow deferrals until the operator returns."""
    waiting = None
    for _ in range(10):
        try:
            result = operator.execute(ctx) if waiting is None else resumed(operator, ctx, waiting)
        except TaskDeferred as deferral:
            waiting = deferral
        else:
            return result
    raise AssertionError("the queue was not drained in 10 steps")


def test_a_build_drains_the_queue_in_batches_and_promotes_in_order(coordinator: FakeCoordinator) -> None:
    SPARK.script = 'grep -q build_id "$0"'
    drain(build(), task_context())
    assert coordinator.promoted == ["s1", "s2", "s3"]
    assert coordinator.attempts == 3


def announced(ctx: Any) -> list[tuple[str, str, int]]:
    """Return asset, segment and version of each event that the task will send."""
    events = ctx["outlet_events"][READY_SEGMENTS].asset_alias_events
    return [(each.dest_asset_key.name, each.extra["segment"], each.extra["version"]) for each in events]


def test_a_build_announces_each_version_with_its_events_and_range(coordinator: FakeCoordinator) -> None:
    SPARK.script = "exit 0"
    operator, ctx = build(), task_context()
    assert operator.outlets == [READY_SEGMENTS]
    drain(operator, ctx)
    assert announced(ctx) == [("rtolap_ready_c", name, 1) for name in ("s1", "s2", "s3")]
    (first, *_) = ctx["outlet_events"][READY_SEGMENTS].asset_alias_events
    assert first.extra == {
        "cube": "c",
        "segment": "s1",
        "version": 1,
        "events": 7,
        "start": "1970-01-01T00:00:00+00:00",
        "end": "1970-01-01T00:00:00.001000+00:00",
    }


def test_what_a_failed_or_lost_execution_has_promoted_is_announced_by_the_one_that_succeeds(
    coordinator: FakeCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = 'rtolap-progress: {"event":"%s","build_id":"%s","error":"no space"}'
    SPARK.script = f"echo '{said % ('built', 'b1')}'; echo '{said % ('failed', 'b2')}'; exit 4"
    operator, ctx = build(), task_context()
    waiting = deferred(lambda: operator.execute(ctx))
    with pytest.raises(AirflowException, match="s2: no space"):
        resumed(operator, ctx, waiting)
    ctx["outlet_events"] = OutletEventAccessors()  # those of a try that failed are not sent
    SPARK.script = "exit 0"
    waiting = deferred(lambda: operator.execute(ctx))
    with monkeypatch.context() as lost:

        def die(*_: object) -> None:
            raise SystemExit("the worker is lost once all is promoted")

        lost.setattr("rtolap.protocols.agent.client.AgentClient.acknowledge", die)
        with pytest.raises(SystemExit):
            resumed(operator, ctx, waiting)
    assert coordinator.promoted == ["s1", "s2", "s3"]
    airflow = Recorded()
    monkeypatch.setattr("rtolap.airflow.outlets.recorded.recorded", airflow)
    airflow.lose(ctx)
    drain(operator, ctx)
    assert [segment for _, segment, _ in announced(ctx)] == ["s1", "s2", "s3"]
    airflow.succeed(ctx, READY_SEGMENTS)
    drain(operator, ctx)  # the task was cleared after its success
    assert announced(ctx) == []


def test_a_version_that_is_purged_meanwhile_is_not_announced(coordinator: FakeCoordinator) -> None:
    SPARK.script = "exit 0"
    coordinator.purged = {"s2"}
    operator, ctx = build(), task_context()
    drain(operator, ctx)
    assert [segment for _, segment, _ in announced(ctx)] == ["s1", "s3"]


def test_a_build_executed_again_waits_for_the_one_that_runs(
    coordinator: FakeCoordinator, agent: RunningAgent
) -> None:
    SPARK.script = f"while [ ! -e {agent.folder}/go ]; do sleep 0.05; done"
    first = deferred(lambda: build().execute(task_context()))
    again = deferred(lambda: build().execute(task_context()))
    assert first.trigger.generation == again.trigger.generation
    assert coordinator.attempts == 2  # the batch of two was attempted once each
    go = agent.folder / "go"
    go.touch()
    operator, ctx = build(), task_context()
    read = event_of(again)
    go.unlink()
    deferred(lambda: resumed(operator, ctx, again, read))
    assert coordinator.promoted == ["s1", "s2"]
    # The first task wakes up late: its result was read already, and nothing is built twice.
    late = deferred(lambda: resumed(operator, ctx, first))
    assert coordinator.attempts == 3
    go.touch()
    resumed(operator, ctx, late)
    assert coordinator.promoted == ["s1", "s2", "s3"]


def test_a_failed_build_is_reported_and_the_retry_builds_again(coordinator: FakeCoordinator) -> None:
    said = 'rtolap-progress: {"event":"%s","build_id":"%s","error":"no space"}'
    SPARK.script = f"echo '{said % ('built', 'b1')}'; echo '{said % ('failed', 'b2')}'; exit 4"
    operator, ctx = build(), task_context()
    waiting = deferred(lambda: operator.execute(ctx))
    with pytest.raises(AirflowException, match="s2: no space"):
        resumed(operator, ctx, waiting)
    assert coordinator.promoted == ["s1"]
    assert coordinator.failed == {"s2": "no space"}
    SPARK.script = "exit 0"
    drain(operator, ctx)
    assert coordinator.promoted == ["s1", "s2", "s3"]


def test_promotion_waits_for_an_earlier_segment(coordinator: FakeCoordinator) -> None:
    SPARK.script = "exit 0"
    coordinator.refusals = 1
    drain(build(), task_context())
    assert coordinator.promoted == ["s1", "s2", "s3"]


def test_a_promotion_that_stays_held_lets_go_of_the_process(coordinator: FakeCoordinator) -> None:
    """Otherwise the segment that has to come first could never be built."""
    SPARK.script = "exit 0"
    coordinator.refusals = 1
    operator, ctx = build(promote_wait_s=0), task_context()
    waiting = deferred(lambda: operator.execute(ctx))
    with pytest.raises(AirflowException, match="earlier segment"):
        resumed(operator, ctx, waiting)
    assert sorted(coordinator.failed) == ["s1", "s2"]
    drain(operator, ctx)
    assert coordinator.promoted == ["s1", "s2", "s3"]


def test_an_attempt_that_was_replaced_is_passed_over(
    coordinator: FakeCoordinator, agent: RunningAgent
) -> None:
    SPARK.script = "exit 0"
    operator, ctx = build(), task_context()
    waiting = deferred(lambda: operator.execute(ctx))
    coordinator.newest["s1"] = "somebody-elses"
    coordinator.refusals = 0
    again = deferred(lambda: resumed(operator, ctx, waiting))
    assert coordinator.promoted == ["s2"]
    with agent.client() as client:
        client.stop("build.c", again.trigger.generation)
        client.acknowledge("build.c", again.trigger.generation)


@pytest.mark.parametrize("policy", ["build", "approve"])
def test_what_was_closed_by_force_is_built_at_once_or_with_an_approval(
    coordinator: FakeCoordinator, policy: str
) -> None:
    SPARK.script = "exit 0"
    coordinator.forced = {"s2"}
    drain(build(incomplete_builds=policy), task_context())
    assert coordinator.promoted == (["s1"] if policy == "approve" else ["s1", "s2", "s3"])
    coordinator.approved_until_ms = 1
    drain(build(incomplete_builds=policy), task_context())
    assert coordinator.promoted == ["s1", "s2", "s3"]


def test_a_policy_that_there_is_not_builds_nothing(coordinator: FakeCoordinator) -> None:
    with pytest.raises(DefinitionError, match=r"no such policy .*expected build or approve"):
        build(incomplete_builds="perhaps").execute(task_context())
    assert coordinator.attempts == 0


def test_an_empty_queue_is_no_build(coordinator: FakeCoordinator) -> None:
    coordinator.waiting.clear()
    assert build().execute(task_context()) == []
