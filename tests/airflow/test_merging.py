"""The operator that merges segments, against a real agent: one process a cube, every set committed once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, TaskDeferred
from rtolap.agent.commands import Resolver
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.operators.merging import MergeSegmentsOperator
from rtolap.base.errors import NotYet, Refused
from rtolap.protocols.coordinator import merge_jobs
from rtolap.protocols.coordinator.merge_jobs import merge_all
from rtolap.protocols.coordinator.messages import CommittedMerge, MergePlans, PlannedMerge

from tests.airflow.task_context import task_context
from tests.airflow.test_operators import SPARK, deferred, event_of, resumed
from tests.support.agent_harness import RunningAgent

pytestmark = pytest.mark.usefixtures("connection")


class FakeCoordinator:
    """Plans two of the intervals that are left; a set is written unless it is among `unwritten`."""

    def __init__(self, *intervals: str) -> None:
        self.left = list(intervals)
        self.plans: dict[str, str] = {}  # merge → interval
        self.commits: list[str] = []
        self.unwritten: set[str] = set()
        self.changed: set[str] = set()

    def __enter__(self) -> FakeCoordinator:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def plan_merges(self, cube: str, *, to: list[str]) -> MergePlans:
        planned = []
        for interval in self.left[:2]:
            merge = f"{len(self.plans):032x}"
            self.plans[merge] = interval
            planned.append(
                PlannedMerge(
                    cube=cube,
                    merge=merge,
                    level="day",
                    interval=interval,
                    segments=24,
                    events=9,
                    spec={"merge": merge},
                )
            )
        return MergePlans(cube=cube, levels=("day",), merges=tuple(planned))

    def commit_merge(self, cube: str, merge: str) -> CommittedMerge:
        interval = self.plans[merge]
        if interval in self.unwritten:
            raise NotYet("it is not written")
        if interval in self.changed:
            raise Refused("a member has changed")
        if interval in self.left:
            self.left.remove(interval)
            self.commits.append(interval)
        return CommittedMerge(
            cube=cube, merge=merge, level="day", interval=interval, segments=24, events=9, committed=True
        )


@pytest.fixture(scope="module")
def programs() -> Mapping[str, Resolver]:
    return {"spark-submit": SPARK}


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> FakeCoordinator:
    fake = FakeCoordinator("d1", "d2", "d3")
    monkeypatch.setattr(RtolapHook, "coordinator", lambda _hook: fake)
    return fake


def merging(**more: Any) -> MergeSegmentsOperator:
    return MergeSegmentsOperator(task_id="t", cube="c", poll_s=0.05, spark_master="local[1]", **more)


def drain(operator: MergeSegmentsOperator, ctx: Any) -> list[str]:
    """Execute, then follow deferrals until the operator returns."""
    waiting = None
    for _ in range(10):
        try:
            result = operator.execute(ctx) if waiting is None else resumed(operator, ctx, waiting)
        except TaskDeferred as deferral:
            waiting = deferral
        else:
            return result
    raise AssertionError("the merges did not end in 10 steps")


def test_all_that_can_be_merged_is_merged_by_one_execution(coordinator: FakeCoordinator) -> None:
    SPARK.script = 'grep -q merge "$0"'
    drain(merging(), task_context())
    assert coordinator.commits == ["d1", "d2", "d3"]
    assert drain(merging(), task_context()) == []


def test_a_task_that_is_executed_again_waits_for_the_process_that_runs(
    coordinator: FakeCoordinator, agent: RunningAgent
) -> None:
    go = agent.folder / "go"
    SPARK.script = f"while [ ! -e {go} ]; do sleep 0.05; done"
    first = deferred(lambda: merging().execute(task_context()))
    again = deferred(lambda: merging().execute(task_context()))
    assert first.trigger.generation == again.trigger.generation
    assert len(coordinator.plans) == 2, "planned once"
    go.touch()
    operator, ctx = merging(), task_context()
    read = event_of(again)
    go.unlink()  # the process of the next merge runs on
    following = deferred(lambda: resumed(operator, ctx, again, read))
    assert coordinator.commits == ["d1", "d2"]
    late = deferred(lambda: resumed(operator, ctx, first))  # its result was read already
    assert late.trigger.generation == following.trigger.generation
    go.touch()
    resumed(operator, ctx, late)
    assert coordinator.commits == ["d1", "d2", "d3"]


def test_what_is_not_written_fails_the_task_behind_the_others_and_the_retry_plans_it_again(
    coordinator: FakeCoordinator,
) -> None:
    SPARK.script = "echo no space; exit 4"
    coordinator.unwritten = {"d1"}
    operator, ctx = merging(), task_context()
    waiting = deferred(lambda: operator.execute(ctx))
    with pytest.raises(AirflowException, match=r"(?s)d1 is not written.*no space"):
        resumed(operator, ctx, waiting)
    assert coordinator.commits == ["d2"]
    SPARK.script = "exit 0"
    coordinator.unwritten = set()
    drain(operator, ctx)
    assert coordinator.commits == ["d2", "d1", "d3"]


def test_a_merge_whose_members_have_changed_is_void_and_no_round_is_repeated_for_it_alone(
    coordinator: FakeCoordinator,
) -> None:
    SPARK.script = "exit 0"
    coordinator.changed = {"d1", "d2", "d3"}
    assert drain(merging(), task_context()) == []
    assert len(coordinator.plans) == 2


def test_the_job_gets_the_plans_as_its_file(coordinator: FakeCoordinator, agent: RunningAgent) -> None:
    seen = agent.folder / "seen.json"
    SPARK.script = f'cp "$0" {seen}'
    drain(merging(), task_context())
    assert [each["merge"] for each in json.loads(seen.read_text())] == [f"{2:032x}"]


def test_the_command_merges_all_at_the_agent_and_goes_on_with_a_process_that_is_there(
    coordinator: FakeCoordinator, agent: RunningAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge_jobs, "POLL_S", 0.05)
    SPARK.script = "exit 0"
    deferred(lambda: merging().execute(task_context()))  # a task that was lost
    seen: list[MergePlans] = []
    with agent.client() as client:
        options = ("--master", "local[1]")
        rounds = merge_all(client, coordinator, "c", to=(), options=options, planned=seen.append)  # type: ignore[arg-type]
    assert [each.merged for each in rounds] == [("d1", "d2"), ("d3",)]
    assert [len(plans.merges) for plans in seen] == [1, 0]
    assert coordinator.commits == ["d1", "d2", "d3"]
