"""Moves that nobody notices, as the coordinator plans, holds up, ends, cancels and undoes them."""

from __future__ import annotations

import json
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rtolap.base.errors import Refused
from rtolap.cli import receivers
from rtolap.coordinator.moves import not_warm
from rtolap.metadata.records import CubeControl, NextAssignment
from rtolap.protocols.coordinator.messages import (
    CubeReport,
    HeartbeatRequest,
    PartitionReport,
    Reassignment,
    ReassignRequest,
)
from typer.testing import CliRunner

from tests.support.cubes.coordinator_harness import NAME, Cluster

AFTER = {"rs1": (0, 1), "rs2": (2, 3)}
BEFORE = {"rs1": (0, 1, 2, 3)}


@pytest.fixture
def running(cluster: Cluster) -> Cluster:
    """A cube on rs1 alone, with a second replica set that has just come."""
    cluster.enabled()
    cluster.receiver("r2", "rs2")
    return cluster


def warm(cluster: Cluster, assignment: dict[str, tuple[int, ...]] = AFTER) -> Reassignment:
    return cluster.client.reassign(NAME, ReassignRequest(assignment=assignment, warm_up=True))


def report(epoch: int, positions: dict[int, int], state: str = "CONSUMING") -> CubeReport:
    partitions = {p: PartitionReport(position=at) for p, at in positions.items()}
    return CubeReport(state=state, assignment_epoch=epoch, partitions=partitions)


def beat(
    cluster: Cluster, receiver: str, replica_set: str, serves: CubeReport, ahead: CubeReport | None = None
) -> None:
    cluster.client.heartbeat(
        HeartbeatRequest(
            receiver_id=receiver,
            replica_set=replica_set,
            cubes={NAME: serves},
            warming={NAME: ahead} if ahead is not None else {},
        )
    )


def all_warm(cluster: Cluster, epoch: int) -> None:
    old = report(epoch - 1, dict.fromkeys(range(4), 1000))
    beat(cluster, "r1", "rs1", old, report(epoch, {0: 1000, 1: 1000}))
    beat(cluster, "r2", "rs2", report(epoch - 1, {}), report(epoch, {2: 1000, 3: 1000}))
    cluster.ensemble.settle()  # the leader's ticks look at what its watches have brought


def test_the_assignment_changes_when_all_have_what_was_answered(running: Cluster) -> None:
    planned = warm(running)
    assert (planned.applied, planned.epoch, planned.planned_epoch) == (False, 1, 2)
    running.coordinator.tick()
    status = running.client.cube(NAME)
    assert (status.assignment, status.assignment_epoch, status.next_assignment) == (BEFORE, 1, AFTER)
    assert status.move_waits == (
        "replica set rs1 has not reported how far partitions [0, 1, 2, 3] were answered",
        "receiver r1 of rs1 has not begun to warm up",
        "receiver r2 of rs2 has not begun to warm up",
    )
    all_warm(running, 2)
    beat(running, "r2", "rs2", report(1, {}), report(2, {2: 999, 3: 1000}))
    running.coordinator.tick()
    assert running.client.cube(NAME).assignment_epoch == 1, "nobody was known to have answered before"
    assert running.client.cube(NAME).move_waits == ("receiver r2 of rs2 is at 999 of 1000 in partition 2",)
    running.coordinator.tick()
    assert running.client.cube(NAME).assignment_epoch == 1
    all_warm(running, 2)
    running.coordinator.tick()
    status = running.client.cube(NAME)
    assert (status.assignment, status.assignment_epoch, status.next_epoch) == (AFTER, 2, None)


def test_another_move_is_refused_by_name_while_one_runs(running: Cluster) -> None:
    warm(running)
    assert warm(running).planned_epoch == 2, "a repetition is answered as before"
    for warm_up in (True, False):
        wanted = ReassignRequest(assignment={"rs2": (0, 1, 2, 3)}, warm_up=warm_up)
        with pytest.raises(Refused, match=f"another move of cube {NAME} runs.*epoch 2"):
            running.client.reassign(NAME, wanted)
    with pytest.raises(Refused, match="another move"):
        running.client.reassign(NAME, ReassignRequest(assignment=AFTER, warm_up=False))


def test_a_cancelled_move_leaves_all_as_it_was_and_its_epoch_to_nobody(running: Cluster) -> None:
    warm(running)
    assert running.client.cancel_move(NAME).next_epoch is None
    all_warm(running, 2)
    running.coordinator.tick()
    assert running.client.cube(NAME).assignment == BEFORE
    with pytest.raises(Refused, match="no move"):
        running.client.cancel_move(NAME)
    assert warm(running, {"rs2": (0, 1, 2, 3)}).planned_epoch == 3, "a receiver may still be ahead for 2"
    running.client.cancel_move(NAME)
    assert running.client.reassign(NAME, ReassignRequest(assignment=AFTER, warm_up=False)).epoch == 4


def test_new_partitions_of_the_topic_give_a_move_up(running: Cluster) -> None:
    warm(running)
    running.topics.logs["clicks"][4] = (0, 10)
    running.coordinator.assignments.extend(NAME, range(5), "id-1")
    status = running.client.cube(NAME)
    assert (status.assignment, status.assignment_epoch, status.next_epoch) == (
        {"rs1": (0, 1, 2, 3, 4)},
        3,
        None,
    )


def test_a_fresh_leader_goes_on_with_the_move(running: Cluster) -> None:
    warm(running)
    all_warm(running, 2)
    running.coordinator.tick()
    running.coordinator._begin()
    running.coordinator.tick()
    assert running.client.cube(NAME).assignment_epoch == 1, "it has heard nobody yet"
    all_warm(running, 2)
    running.coordinator.tick()
    running.coordinator.tick()
    assert running.client.cube(NAME).assignment == AFTER


@pytest.mark.parametrize("lost", ["before", "after"])
def test_a_lost_answer_of_the_store_plans_once(running: Cluster, lost: Literal["before", "after"]) -> None:
    faults = [lost]
    running.ensemble.fault = lambda operations: faults.pop() if faults else None
    assert warm(running).planned_epoch == 2
    assert running.client.cube(NAME).next_epoch == 2


def test_a_move_is_undone_in_the_same_way(running: Cluster) -> None:
    with pytest.raises(Refused, match="can be undone"):
        running.client.undo_move(NAME)
    warm(running)
    all_warm(running, 2)
    running.coordinator.tick()
    running.coordinator.tick()
    back = running.client.undo_move(NAME)
    assert (back.planned_epoch, back.after, back.applied) == (3, BEFORE, False)
    beat(running, "r1", "rs1", report(2, {0: 1000, 1: 1000}), report(3, dict.fromkeys(range(4), 1000)))
    beat(running, "r2", "rs2", report(2, {2: 1000, 3: 1000}))
    running.coordinator.tick()
    running.coordinator.tick()
    assert running.client.cube(NAME).assignment == BEFORE


def test_the_commands_plan_cancel_and_undo(running: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running.client, "close", lambda: None)  # the command closes what it opens
    monkeypatch.setattr(receivers, "coordinator_client", lambda: running.client)

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(receivers.app, [*arguments], env={"COLUMNS": "160"})
        assert result.exit_code == 0, (result.output, result.exception)
        return result.stdout

    assert "warms up for assignment 2" in run("rebalance", NAME, "--yes")
    assert "stays with assignment 1" in run("cancel-move", NAME)
    plan = json.loads(run("rebalance", NAME, "--yes", "--json"))
    assert (plan["applied"], plan["planned_epoch"]) == (False, 3)
    all_warm(running, 3)
    running.coordinator.tick()
    running.coordinator.tick()
    assert "warms up for assignment 4" in run("undo-move", NAME)


@settings(max_examples=200)
@given(
    answered=st.dictionaries(st.integers(0, 3), st.integers(0, 5)),
    read=st.dictionaries(st.integers(0, 3), st.integers(0, 5)),
    state=st.sampled_from(["CONSUMING", "REPLAYING", "PAUSED", "FAILED"]),
    epoch=st.integers(1, 3),
)
def test_nobody_is_warm_who_lacks_anything_that_was_answered(
    answered: dict[int, int], read: dict[int, int], state: str, epoch: int
) -> None:
    control = CubeControl(
        assignment={"a": (0, 1, 2, 3)}, assignment_epoch=1, next=NextAssignment(2, {"b": (0, 1, 2, 3)})
    )
    waits = not_warm(control, {"b": ("r",)}, {"r": report(epoch, read, state)}, answered)
    whole = all(p in read and read[p] >= answered.get(p, 0) for p in range(4))
    assert bool(waits) is not (whole and state == "CONSUMING" and epoch == 2)
    assert not_warm(control, {"b": ()}, {}, answered) == ["replica set b has no living receiver"]
    unheard = set(range(4)) - answered.keys()
    owner_lives = not_warm(control, {"a": ("o",), "b": ("r",)}, {"r": report(epoch, read, state)}, answered)
    assert bool(owner_lives) is bool(waits or unheard)
