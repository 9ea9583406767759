from __future__ import annotations

import json
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rtolap.base.errors import Refused
from rtolap.cli import receivers
from rtolap.coordinator.assigners import ReplicaSetLoad, rebalance, validate_plan
from rtolap.metadata import paths
from rtolap.metadata.store import Delete
from rtolap.protocols.coordinator.messages import (
    CubeReport,
    HeartbeatRequest,
    PartitionReport,
    ReassignRequest,
)
from typer.testing import CliRunner

from tests.support.cubes.coordinator_harness import NAME, Cluster

NAMES = [f"rs{number}" for number in range(6)]


def level(**changes: object) -> ReassignRequest:
    """A request that changes the assignment at once."""
    return ReassignRequest.model_validate({"warm_up": False, **changes})


@pytest.fixture
def running(cluster: Cluster) -> Cluster:
    """A cube on rs1 alone, with a second replica set that has just come."""
    cluster.enabled()
    cluster.receiver("r2", "rs2")
    return cluster


# -- the plan -------------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(
    owners=st.lists(st.sampled_from(NAMES), min_size=1, max_size=40),
    open_sets=st.sets(st.sampled_from(NAMES), min_size=1),
    tasks_max=st.integers(-1, 8),
    elsewhere=st.lists(st.integers(0, 30), min_size=6, max_size=6),
)
def test_a_level_plan_moves_only_what_has_to(
    owners: list[str], open_sets: set[str], tasks_max: int, elsewhere: list[int]
) -> None:
    current = {name: tuple(p for p, owner in enumerate(owners) if owner == name) for name in set(owners)}
    loads = [ReplicaSetLoad(name, 0, elsewhere[NAMES.index(name)]) for name in sorted(open_sets)]
    partitions = range(len(owners))
    plan = rebalance(current, partitions, tasks_max, loads)
    validate_plan(plan, partitions, {name: ["r"] for name in open_sets})
    sizes = sorted(map(len, plan.values()))
    assert sizes[-1] - sizes[0] <= 1, "level"
    assert len(plan) == min(max(1, tasks_max), len(open_sets), len(owners))
    kept = sum(len(set(plan[name]) & set(current.get(name, ()))) for name in plan)
    possible = sorted((len(current.get(name, ())) for name in plan), reverse=True)
    assert kept == sum(
        min(held, len(owners) // len(plan) + (at < len(owners) % len(plan)))
        for at, held in enumerate(possible)
    ), "whatever may stay does"
    assert rebalance(plan, partitions, tasks_max, loads) == plan, "what is level stays as it is"


# -- the reassignment -----------------------------------------------------------------------------------


def test_a_dry_run_shows_what_is_read_again_and_changes_nothing(running: Cluster) -> None:
    running.metadata.set_replay_from(NAME, "rs1", {2: 600})
    plan = running.client.reassign(NAME, level(dry_run=True))
    assert plan.after == {"rs1": (0, 1), "rs2": (2, 3)}
    assert [(m.partition, m.source, m.target, m.read_from, m.log_end) for m in plan.moves] == [
        (2, "rs1", "rs2", 600, 1000),
        (3, "rs1", "rs2", 30, 1000),
    ]
    assert not plan.applied
    assert running.client.cube(NAME).assignment == {"rs1": (0, 1, 2, 3)}


def test_a_replica_set_is_added_to_a_running_cube(running: Cluster) -> None:
    done = running.client.reassign(NAME, level())
    status = running.client.cube(NAME)
    assert done.applied
    assert done.epoch == status.assignment_epoch == 2
    assert status.assignment == {"rs1": (0, 1), "rs2": (2, 3)}
    assert status.first_offsets == {0: 0, 1: 10, 2: 20, 3: 30}, "the cube began where it began"
    again = running.client.reassign(NAME, level())
    assert (again.applied, again.moves, again.epoch) == (False, (), 2), "asking again moves nothing"


def test_partitions_of_a_lost_replica_set_are_given_to_another(running: Cluster) -> None:
    running.metadata.put_replica_set("rs1", ())
    assert running.client.reassign(NAME, level()).after == {"rs2": (0, 1, 2, 3)}
    assert running.client.cube(NAME).assignment == {"rs2": (0, 1, 2, 3)}


@pytest.mark.parametrize("lost", ["before", "after"])
def test_a_lost_answer_of_the_store_moves_once(running: Cluster, lost: Literal["before", "after"]) -> None:
    faults = [lost]
    running.ensemble.fault = lambda operations: faults.pop() if faults else None
    assert running.client.reassign(NAME, level()).applied
    assert running.client.cube(NAME).assignment_epoch == 2


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (level(assignment={"rs1": (0, 1, 2)}), "missing"),
        (level(assignment={"rs1": (0, 1, 2, 3), "rs2": (3,)}), "twice"),
        (level(assignment={"rs1": (0, 1, 2), "rs9": (3,)}), "unknown replica set"),
        (level(assignment={"rs1": (0, 1, 2), "rs3": (3,)}), "no receiver"),
        (level(replica_sets=("rs9",)), "no such replica set"),
        (level(epoch=7), "has changed"),
    ],
)
def test_what_would_lose_a_partition_is_refused(
    running: Cluster, request_: ReassignRequest, says: str
) -> None:
    running.metadata.put_replica_set("rs3", ("dead",))
    with pytest.raises(Refused, match=says):
        running.client.reassign(NAME, request_)
    assert running.client.cube(NAME).assignment == {"rs1": (0, 1, 2, 3)}


def test_what_kafka_no_longer_has_is_not_moved(running: Cluster) -> None:
    """Nor what stays: its owner takes the moved events out of its tables by reading the rest again."""
    running.topics.logs["clicks"][0] = (11, 1000)
    with pytest.raises(Refused, match="begins at"):
        running.client.reassign(NAME, level())
    running.metadata.set_replay_from(NAME, "rs1", {0: 11})
    assert running.client.reassign(NAME, level()).applied


def test_a_paused_or_never_enabled_cube_is_not_reassigned(cluster: Cluster) -> None:
    cluster.receiver("r1", "rs1")
    cluster.receiver("r2", "rs2")
    cluster.define(consumer_tasks_max=1)
    with pytest.raises(Refused, match="enable it first"):
        cluster.client.reassign(NAME, level())
    cluster.client.enable_cube(NAME)
    cluster.client.pause_cube(NAME)
    with pytest.raises(Refused, match="paused"):
        cluster.client.reassign(NAME, level(replica_sets=("rs2",)))


def test_the_status_says_who_has_not_caught_up(running: Cluster) -> None:
    def beat(receiver: str, replica_set: str, *partitions: int, epoch: int, state: str = "CONSUMING") -> None:
        report = CubeReport(
            state=state,
            assignment_epoch=epoch,
            partitions={p: PartitionReport(position=1) for p in partitions},
        )
        running.client.heartbeat(
            HeartbeatRequest(receiver_id=receiver, replica_set=replica_set, cubes={NAME: report})
        )

    beat("r1", "rs1", 0, 1, 2, 3, epoch=1)
    assert running.client.cube(NAME).catching_up == ()
    running.client.reassign(NAME, level())
    assert running.client.cube(NAME).catching_up == (0, 1, 2, 3), "nobody follows it yet"
    beat("r1", "rs1", 0, 1, epoch=2)
    beat("r2", "rs2", 2, 3, epoch=2, state="REPLAYING")
    assert running.client.cube(NAME).catching_up == (2, 3)
    beat("r2", "rs2", 2, 3, epoch=2)
    assert running.client.cube(NAME).catching_up == ()


# -- the command ----------------------------------------------------------------------------------------


def rebalance_command(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> str:
    monkeypatch.setattr(cluster.client, "close", lambda: None)  # the command closes what it opens
    monkeypatch.setattr(receivers, "coordinator_client", lambda: cluster.client)
    result = CliRunner().invoke(
        receivers.app, ["rebalance", NAME, "--at-once", *arguments], env={"COLUMNS": "160"}
    )
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def test_the_command_shows_the_plan_then_moves(running: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "rs2" in rebalance_command(running, monkeypatch, "--dry-run")
    assert running.client.cube(NAME).assignment_epoch == 1
    plan = json.loads(rebalance_command(running, monkeypatch, "--move", "3=rs2", "--yes", "--json"))
    assert (plan["applied"], plan["after"]) == (True, {"rs1": [0, 1, 2], "rs2": [3]})
    assert "follows assignment 3" in rebalance_command(running, monkeypatch, "--over", "rs2", "--yes")
    assert running.client.cube(NAME).assignment == {"rs2": (0, 1, 2, 3)}
    assert "nothing" in rebalance_command(running, monkeypatch, "--over", "rs2")


def test_a_move_warms_up_unless_nobody_answers_for_what_moves(running: Cluster) -> None:
    wanted = {"replica_sets": ("rs2",)}
    planned = running.client.reassign(NAME, ReassignRequest.model_validate(wanted))
    assert (planned.applied, planned.planned_epoch) == (False, 2), "rs1 answers meanwhile"
    running.client.cancel_move(NAME)
    running.store.commit([Delete(paths.receiver_live("r1"))])
    moved = running.client.reassign(NAME, ReassignRequest.model_validate(wanted))
    assert (moved.applied, moved.planned_epoch) == (True, None), "nobody answers for rs1"


def test_a_cube_that_is_switched_off_moves_at_once(running: Cluster) -> None:
    running.client.disable_cube(NAME)
    assert running.client.reassign(NAME, ReassignRequest(replica_sets=("rs2",))).applied


def test_the_command_warms_up_unless_it_is_told_otherwise(
    running: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = json.loads(rebalance_command(running, monkeypatch, "--warm-up", "--yes", "--json"))
    assert (plan["applied"], plan["planned_epoch"]) == (False, 2), "the later option counts"
