"""Moves of partitions in Airflow, with a coordinator on memory stores: planned, approved, begun, undone."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferred,
)
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.operators.coordinator import SwitchCubeOperator
from rtolap.airflow.operators.moves import (
    LINES_MAX,
    MoveBackOperator,
    MovePartitionsOperator,
    PlanMoveOperator,
    move_text,
)
from rtolap.airflow.sensors.moves import MoveStandsSensor
from rtolap.airflow.triggers.moves import MoveTrigger
from rtolap.base.errors import Refused, Unavailable
from rtolap.protocols.coordinator.messages import (
    CubeReport,
    CubeStatus,
    HeartbeatRequest,
    Move,
    PartitionReport,
    Reassignment,
    ReassignRequest,
)

from tests.support.cubes.coordinator_harness import NAME, Cluster

DAGS = Path(__file__).resolve().parents[2] / "dags"
CONTEXT: Any = {"ti": SimpleNamespace(dag_id="a_dag", run_id="a_run")}
APPROVED = {"chosen_options": ["Approve"], "responded_by_user": {"id": "ann", "name": "ann"}}
REJECTED = {**APPROVED, "chosen_options": ["Reject"]}
TIMED_OUT = ("__fail__", {"error": "Trigger timeout"})  # how Airflow resumes a task whose trigger is overdue
BEFORE = {"rs1": (0, 1, 2, 3)}
AFTER = {"rs1": (1, 2, 3), "rs2": (0,)}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A cube on rs1 alone, half of whose load is partition 0, with a second replica set."""
    cluster = Cluster(tmp_path)
    monkeypatch.setattr(cluster.client, "close", lambda: None)  # a task closes what it opens
    monkeypatch.setattr(RtolapHook, "coordinator", lambda _hook: cluster.client)
    cluster.enabled()
    cluster.receiver("r2", "rs2")
    serve(cluster)
    yield cluster
    cluster.close()


def serve(cluster: Cluster) -> None:
    """Have both receivers serve what they own, and be warm for what a move prepares."""
    control = cluster.metadata.control(NAME)

    def report(epoch: int, owned: tuple[int, ...]) -> CubeReport:
        read = {
            p: PartitionReport(
                position=1000, log_end=1000, records_per_s=10.0 if p else 30.0, held_bytes=100 if p else 300
            )
            for p in owned
        }
        return CubeReport(state="CONSUMING", assignment_epoch=epoch, partitions=read)

    for receiver, name in (("r1", "rs1"), ("r2", "rs2")):
        planned = control.warms(name)
        warming = {NAME: report(planned.epoch, planned.assignment[name])} if planned else {}
        serves = {NAME: report(control.assignment_epoch, control.assignment.get(name, ()))}
        cluster.client.heartbeat(
            HeartbeatRequest(receiver_id=receiver, replica_set=name, cubes=serves, warming=warming)
        )


def let_move_end(cluster: Cluster) -> None:
    for _ in range(2):
        serve(cluster)
        cluster.ensemble.settle()  # the leader's ticks look at what its watches have brought
        cluster.coordinator.tick()
    serve(cluster)


def planned(**more: Any) -> dict[str, Any]:
    plan: dict[str, Any] = PlanMoveOperator(task_id="plan", cube=NAME, **more).execute(CONTEXT)
    return plan


def begin(plan: Any, answer: Any = APPROVED) -> int:
    epoch: int = MovePartitionsOperator(task_id="move", cube=NAME, planned=plan, answer=answer).execute(
        CONTEXT
    )
    return epoch


def stands(epoch: int, **more: Any) -> MoveStandsSensor:
    return MoveStandsSensor(task_id="stands", cube=NAME, epoch=epoch, **more)


def test_a_move_is_planned_begun_awaited_and_moved_back(cluster: Cluster) -> None:
    plan = planned()
    assert plan["after"] == {name: list(owned) for name, owned in AFTER.items()}
    assert "- partition 0: rs1 → rs2, 1000 records are read again" in plan["text"]
    assert "- rs1 carries 100.0 % of the load of all cubes, then " in plan["text"]
    assert cluster.metadata.control(NAME).next is None, "a plan changes nothing"
    epoch = begin(plan)
    assert epoch == 2
    assert begin(plan) == 2, "a lost try is found"
    with pytest.raises(TaskDeferred):
        stands(epoch).execute(CONTEXT)
    let_move_end(cluster)
    assert stands(epoch).execute(CONTEXT) == 2
    assert begin(plan) == 2, "and found when it stands"
    assert cluster.client.cube(NAME).assignment == AFTER
    for _ in range(2):
        back = MoveBackOperator(task_id="back", cube=NAME, planned=plan, epoch=epoch, answer=APPROVED)
        assert back.execute(CONTEXT) == 3
    let_move_end(cluster)
    assert stands(3).execute(CONTEXT) == 3
    assert cluster.client.cube(NAME).assignment == BEFORE


@pytest.mark.parametrize("flag", [True, "True", "true"])
def test_a_move_at_once_stands_when_its_task_ends(cluster: Cluster, flag: bool | str) -> None:
    plan = planned()
    move = MovePartitionsOperator(task_id="move", cube=NAME, planned=plan, answer=APPROVED, at_once=flag)
    for _ in range(2):
        assert move.execute(CONTEXT) == 2, "a lost try is found"
    assert cluster.client.cube(NAME).assignment == AFTER
    assert stands(2).execute(CONTEXT) == 2


def test_nothing_moves_before_somebody_has_approved_it(cluster: Cluster) -> None:
    plan = planned()
    for answer in (REJECTED, {}, {**APPROVED, "responded_by_user": None}):
        with pytest.raises(AirflowFailException, match="nobody has approved"):
            begin(plan, answer)
    assert cluster.metadata.control(NAME).next is None


def test_a_plan_for_an_assignment_that_has_changed_is_refused(cluster: Cluster) -> None:
    plan = planned()
    cluster.client.reassign(NAME, ReassignRequest(assignment={"rs2": (0, 1, 2, 3)}, warm_up=False))
    with pytest.raises(Refused, match="has changed since"):
        begin(plan)
    back = MoveBackOperator(task_id="back", cube=NAME, planned=plan, epoch=7, answer=APPROVED)
    with pytest.raises(Refused, match="has changed since"):
        back.execute(CONTEXT)


def test_a_plan_by_count_over_chosen_replica_sets(cluster: Cluster) -> None:
    plan = planned(by="count", over=["rs2"])
    assert (plan["after"], plan["load"]) == ({"rs2": [0, 1, 2, 3]}, None)
    assert "load" not in plan["text"]
    assert planned(by="count", over='["rs2"]')["after"] == plan["after"]
    assert planned(by="count", over="null")["after"] == {"rs1": [0, 1], "rs2": [2, 3]}
    with pytest.raises(AirflowSkipException, match="nothing of clicks_by_page has to move"):
        planned(by="count", over=["rs1"])
    with pytest.raises(AirflowFailException, match="by `load` or by `count`"):
        planned(by="taste")


def test_a_cube_that_is_switched_off_is_not_moved(cluster: Cluster) -> None:
    cluster.client.disable_cube(NAME)
    with pytest.raises(AirflowFailException, match="is disabled"):
        planned()


def test_a_switch_is_turned_under_the_name_of_who_started_the_run(cluster: Cluster) -> None:
    context: Any = {**CONTEXT, "dag_run": SimpleNamespace(triggering_user_name="ann")}
    states = [
        SwitchCubeOperator(task_id="t", cube=NAME, to=to, reason="a repair").execute(context)
        for to in ("pause", "pause", "resume", "disable", "enable")
    ]
    assert states == ["paused", "paused", "on", "off", "on"]
    switched = cluster.client.cube(NAME).switched
    assert switched is not None
    assert (switched.to, switched.by, switched.reason) == ("enable", "ann", "a repair")
    with pytest.raises(AirflowFailException, match="no such switch: 'burn'"):
        SwitchCubeOperator(task_id="t", cube=NAME, to="burn").execute(context)


def test_a_move_that_is_given_up_fails_the_wait_and_one_that_takes_too_long_says_why(
    cluster: Cluster,
) -> None:
    epoch = begin(planned())
    with pytest.raises(AirflowSensorTimeout, match=r"assignment 2 is prepared; waits for: .*warm up"):
        stands(epoch, timeout=5).resume_execution(*TIMED_OUT, CONTEXT)
    cluster.client.cancel_move(NAME)
    with pytest.raises(AirflowFailException, match="the move to assignment 2 was given up"):
        stands(epoch).execute(CONTEXT)


class Looked:
    """A coordinator whose answers are given one after the other."""

    def __init__(self, *answers: CubeStatus | Unavailable) -> None:
        self._answers = list(answers)

    async def __aenter__(self) -> Looked:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def cube(self, name: str) -> CubeStatus:
        answer = self._answers.pop(0)
        if isinstance(answer, Unavailable):
            raise answer
        return answer


@pytest.mark.parametrize(("last", "is_there"), [({"assignment_epoch": 2}, True), ({}, False)])
def test_the_trigger_fires_when_the_move_has_ended(
    monkeypatch: pytest.MonkeyPatch, last: dict[str, Any], is_there: bool
) -> None:
    status = CubeStatus(name="c", definition={}, enabled=True, paused=False, assignment_epoch=1, next_epoch=2)
    ended = status.model_copy(update={"next_epoch": None, **last})
    looked = Looked(status, Unavailable("nobody answers"), status, ended)
    monkeypatch.setattr(RtolapHook, "async_coordinator", lambda _hook: looked)

    async def loaded(_hook: RtolapHook) -> None: ...

    monkeypatch.setattr(RtolapHook, "load", loaded)

    async def first() -> Any:
        async for event in MoveTrigger(cube="c", epoch=2, poll_s=0.001).run():
            return event.payload
        raise AssertionError("the trigger ended without an event")

    event = asyncio.run(first())
    assert event["stands"] is is_there
    if is_there:
        assert stands(2).heard(CONTEXT, {"waited_for": [1], "said": event}, [1]) == 2
    else:
        with pytest.raises(AirflowFailException, match="was given up"):
            stands(2).heard(CONTEXT, {"waited_for": [1], "said": event}, [1])


def test_the_form_names_some_of_many_moves() -> None:
    moves = tuple(Move(partition=p, source="a", target="b", read_from=0, log_end=1) for p in range(60))
    text = move_text(Reassignment(cube="c", epoch=1, before={}, after={}, moves=moves))
    assert text.count("- partition") == LINES_MAX
    assert "- and 10 partitions more" in text


def test_each_change_of_the_dag_comes_after_an_approval_of_its_own() -> None:
    dag = DagBag(str(DAGS)).dags["rtolap_move_partitions"]
    order = ["plan", "approve", "move", "stands", "approve_back", "back", "stands_again"]
    for before, after in itertools.pairwise(order):
        assert after in dag.task_dict[before].downstream_task_ids
    for task_id, task in dag.task_dict.items():
        assert task.trigger_rule == "all_success"
        assert hasattr(task, "answer") == (task_id in {"move", "back"})
        if task_id.startswith("approve"):
            assert (task.defaults, task.response_timeout) == (None, None)
    assert dag.task_dict["move"].answer.operator.task_id == "approve"
    assert dag.task_dict["back"].answer.operator.task_id == "approve_back"
