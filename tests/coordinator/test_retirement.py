"""Drains of replica sets, and removals of these and of receivers: what is planned, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Literal

import msgspec
import pytest
from rtolap.base.errors import NotFound, NotYet, Refused
from rtolap.cli import receivers, retirement
from rtolap.coordinator.retirement.drains import NEXT_IN_LINE
from rtolap.metadata import paths
from rtolap.metadata.records import ReplicaSetRecord
from rtolap.metadata.store import Delete, Operation
from rtolap.protocols.coordinator import operations
from rtolap.protocols.coordinator.messages import (
    CubeReport,
    Drain,
    DrainRequest,
    HeartbeatRequest,
    PartitionReport,
    ReassignRequest,
)
from rtolap.protocols.rest.request_ids import HEADER
from typer.testing import CliRunner

from tests.support.cubes.coordinator_harness import CUBE, NAME, Cluster

OTHER = "other"
ALL = (0, 1, 2, 3)


@pytest.fixture
def running(cluster: Cluster) -> Cluster:
    """A cube on rs1 alone, whose receiver is up to date, with a second replica set."""
    cluster.enabled()
    cluster.receiver("r2", "rs2")
    serve(cluster, "r1", "rs1")
    return cluster


def serve(cluster: Cluster, receiver: str, replica_set: str) -> None:
    """Have the receiver serve all that its replica set owns, and be warm for what a move prepares."""

    def report(epoch: int, owned: tuple[int, ...]) -> CubeReport:
        read = PartitionReport(position=1000, log_end=1000, records_per_s=1.0, held_bytes=100)
        return CubeReport(state="CONSUMING", assignment_epoch=epoch, partitions=dict.fromkeys(owned, read))

    controls = {cube: cluster.metadata.control(cube) for cube in cluster.metadata.cubes()}
    cluster.client.heartbeat(
        HeartbeatRequest(
            receiver_id=receiver,
            replica_set=replica_set,
            cubes={
                cube: report(control.assignment_epoch, control.assignment.get(replica_set, ()))
                for cube, control in controls.items()
            },
            warming={
                cube: report(planned.epoch, planned.assignment[replica_set])
                for cube, control in controls.items()
                if (planned := control.warms(replica_set)) is not None
            },
        )
    )


def all_serve(cluster: Cluster) -> None:
    for name, replica_set in cluster.metadata.replica_sets().items():
        for receiver in replica_set.receivers:
            serve(cluster, receiver, name)


def let_moves_end(cluster: Cluster) -> None:
    for _ in range(2):
        all_serve(cluster)
        cluster.ensemble.settle()  # the leader's ticks look at what its watches have brought
        cluster.coordinator.tick()
    all_serve(cluster)


def another_cube(cluster: Cluster) -> None:
    """A second cube, on the same replica set."""
    cluster.client.create_cube({**CUBE, "name": OTHER})
    cluster.client.enable_cube(OTHER)
    cluster.client.reassign(OTHER, ReassignRequest(assignment={"rs1": ALL}, warm_up=False))
    all_serve(cluster)


def leave(cluster: Cluster, receiver: str) -> None:
    """Have the receiver stop: its session is gone."""
    cluster.store.commit([Delete(paths.receiver_live(receiver))])


def drain(cluster: Cluster, name: str = "rs1", **request: object) -> Drain:
    return cluster.client.drain_replica_set(name, DrainRequest.model_validate(request))


# -- drains ---------------------------------------------------------------------------------------------


def test_a_drain_moves_the_cubes_one_after_the_other_with_warm_up(running: Cluster) -> None:
    another_cube(running)
    begun = drain(running)
    assert begun.draining
    assert [(one.cube, one.partitions, one.planned_epoch) for one in begun.cubes] == [
        (NAME, ALL, 2),
        (OTHER, ALL, None),
    ]
    assert begun.cubes[1].waits == (NEXT_IN_LINE,)
    assert [move.target for move in begun.cubes[0].moves] == ["rs2"] * 4
    assert running.client.cube(NAME).assignment == {"rs1": ALL}, "the old owners answer"
    again = drain(running)
    assert (again.cubes[0].planned_epoch, again.cubes[1].waits) == (2, (NEXT_IN_LINE,))
    assert any("has not begun to warm up" in line for line in again.cubes[0].waits)
    let_moves_end(running)
    assert running.client.cube(NAME).assignment == {"rs2": ALL}
    assert [(one.cube, one.planned_epoch) for one in drain(running).cubes] == [(OTHER, 3)]
    let_moves_end(running)
    assert drain(running).cubes == ()


def test_several_cubes_may_move_at_once(running: Cluster) -> None:
    another_cube(running)
    assert [one.planned_epoch for one in drain(running, cubes_max=2).cubes] == [2, 3]


def test_a_dry_run_shows_all_moves_and_changes_nothing(running: Cluster) -> None:
    another_cube(running)
    shown = drain(running, dry_run=True)
    assert not shown.draining
    assert [(one.cube, len(one.moves), one.planned_epoch) for one in shown.cubes] == [
        (NAME, 4, None),
        (OTHER, 4, None),
    ]
    assert not running.metadata.replica_sets()["rs1"].draining
    assert running.metadata.control(NAME).next is None


def test_only_the_partitions_of_the_drained_replica_set_move(running: Cluster) -> None:
    running.receiver("r3", "rs3")
    running.client.reassign(NAME, ReassignRequest(assignment={"rs1": (0,), "rs2": (1, 2, 3)}, warm_up=False))
    all_serve(running)
    (cube,) = drain(running).cubes
    assert [(move.partition, move.source, move.target) for move in cube.moves] == [(0, "rs1", "rs3")]


def test_a_drained_replica_set_is_given_nothing(running: Cluster) -> None:
    drain(running, "rs2")
    for wanted in (
        ReassignRequest(assignment={"rs1": (0, 1), "rs2": (2, 3)}, warm_up=False),
        ReassignRequest(assignment={"rs2": ALL}, warm_up=True),
        ReassignRequest(assignment={"rs2": ALL}, dry_run=True),
        ReassignRequest(replica_sets=("rs2",), warm_up=False),
        ReassignRequest(replica_sets=("rs2",), by="load", warm_up=False),
    ):
        with pytest.raises(Refused, match=r"drained"):
            running.client.reassign(NAME, wanted)
    assert running.client.reassign(NAME, ReassignRequest(dry_run=True)).moves == ()
    running.client.create_cube({**CUBE, "name": OTHER})
    assert running.client.enable_cube(OTHER).assignment == {"rs1": ALL}
    assert running.client.put_replica_set("rs2", ["r2"]).draining
    running.receiver("r4", "rs2")
    assert running.metadata.replica_sets()["rs2"] == ReplicaSetRecord("rs2", ("r2", "r4"), draining=True)


@pytest.mark.parametrize("warm_up", [True, False])
def test_a_drain_that_begins_while_a_move_is_planned_refuses_it(
    running: Cluster, monkeypatch: pytest.MonkeyPatch, warm_up: bool
) -> None:
    """The move has looked at the replica sets, and asks Kafka; meanwhile the drain is noted."""
    offsets = running.topics.offsets

    def meanwhile(topic: str, which: str) -> dict[int, int]:
        if which == "earliest":
            running.metadata.drain_replica_set("rs2", draining=True)
        return offsets(topic, which)

    monkeypatch.setattr(running.topics, "offsets", meanwhile)
    with pytest.raises(Refused, match=r"replica set rs2 takes no partitions.*it is drained"):
        running.client.reassign(NAME, ReassignRequest(assignment={"rs2": ALL}, warm_up=warm_up))
    control = running.metadata.control(NAME)
    assert (control.assignment, control.next) == ({"rs1": ALL}, None)


def test_new_partitions_of_a_topic_go_elsewhere(running: Cluster) -> None:
    running.client.reassign(NAME, ReassignRequest(assignment={"rs1": (0,), "rs2": (1, 2, 3)}, warm_up=False))
    running.metadata.drain_replica_set("rs1", draining=True)
    running.topics.logs["clicks"][4] = (0, 10)
    running.coordinator.assignments.extend(NAME, range(5), "id-1")
    assert running.client.cube(NAME).assignment == {"rs1": (0,), "rs2": (1, 2, 3, 4)}


def test_a_move_back_to_a_drained_replica_set_is_refused(running: Cluster) -> None:
    drain(running)
    let_moves_end(running)
    with pytest.raises(Refused, match=r"replica set rs1 takes no partitions.*--undo"):
        running.client.undo_move(NAME)
    assert not drain(running, undo=True).draining
    assert running.client.undo_move(NAME).planned_epoch == 3


def test_an_undone_drain_plans_nothing_more(running: Cluster) -> None:
    another_cube(running)
    drain(running)
    assert drain(running, undo=True) == Drain(replica_set="rs1", draining=False)
    assert running.metadata.control(NAME).next is None, "the move that it has planned is cancelled"
    assert running.metadata.control(OTHER).next is None


def test_a_drain_is_refused_without_another_living_replica_set(running: Cluster) -> None:
    drain(running, "rs2")
    with pytest.raises(Refused, match=r"replica set rs1 cannot be drained.*partitions of clicks_by_page"):
        drain(running)
    assert not running.metadata.replica_sets()["rs1"].draining, "nothing is changed"
    with pytest.raises(NotFound):
        drain(running, "nobody")


def test_what_keeps_a_cube_from_moving_is_said_and_the_others_move(running: Cluster) -> None:
    another_cube(running)
    running.client.pause_cube(NAME)
    paused, other = drain(running).cubes
    assert "is paused" in paused.refused
    assert other.planned_epoch == 3
    running.client.resume_cube(NAME)
    running.topics.logs["clicks"] = dict.fromkeys(range(4), (900, 1000))
    let_moves_end(running)
    assert "cannot be read again" in drain(running).cubes[0].refused


def test_a_cube_that_catches_up_is_waited_for(running: Cluster) -> None:
    running.coordinator.heartbeats.clear()
    (cube,) = drain(running).cubes
    assert (cube.planned_epoch, cube.refused) == (None, "")
    assert "catching up" in cube.waits[0]


def test_a_cube_that_is_switched_off_moves_at_once(running: Cluster) -> None:
    running.client.disable_cube(NAME)
    drain(running)
    assert running.client.cube(NAME).assignment == {"rs2": ALL}
    assert drain(running).cubes == ()


def test_partitions_of_a_replica_set_that_is_lost_move_too(running: Cluster) -> None:
    leave(running, "r1")
    running.coordinator.heartbeats.clear()
    assert drain(running).cubes[0].planned_epoch == 2
    serve(running, "r2", "rs2")
    running.ensemble.settle()
    running.coordinator.tick()
    running.coordinator.tick()
    assert running.client.cube(NAME).assignment == {"rs2": ALL}


# -- removals -------------------------------------------------------------------------------------------


def test_a_replica_set_is_removed_once_nothing_depends_on_it(running: Cluster) -> None:
    running.closed(10)

    def refused(match: str) -> None:
        with pytest.raises(Refused, match=rf"replica set rs1 cannot be removed.*{match}"):
            running.client.remove_replica_set("rs1")
        assert "rs1" in running.metadata.replica_sets()

    refused(f"partitions of {NAME}.*drain rs1")
    drain(running)
    refused(f"partitions of {NAME}")
    let_moves_end(running)
    drain(running, undo=True)
    refused("it may be given partitions")
    drain(running)
    refused(f"1 that wait for it: {NAME}/19700101100000")
    segment = running.client.queue().entries[0].segment
    running.client.promote(NAME, segment, running.build(segment))
    refused("without living receivers.*r1.*stop them")
    leave(running, "r1")
    running.client.remove_replica_set("rs1")
    assert set(running.metadata.replica_sets()) == {"rs2"}
    assert set(running.metadata.receivers()) == {"r2"}
    assert running.client.cube(NAME).problem is None
    with pytest.raises(NotFound):
        running.client.remove_replica_set("rs1")


def test_a_replica_set_that_a_move_is_about_to_fill_stays(running: Cluster) -> None:
    running.client.reassign(NAME, ReassignRequest(assignment={"rs2": ALL}, warm_up=True))
    running.metadata.drain_replica_set("rs2", draining=True)
    leave(running, "r2")
    with pytest.raises(Refused, match=rf"rs2 cannot be removed.*partitions of {NAME}"):
        running.client.remove_replica_set("rs2")


def test_partitions_that_are_given_while_it_is_removed_keep_it(running: Cluster) -> None:
    """The assignment is committed between the look at the cubes and the removal."""
    drain(running, "rs2")
    leave(running, "r2")
    looked = []

    def check(record: ReplicaSetRecord) -> None:
        looked.append(record)
        if len(looked) == 1:  # somebody undoes the drain and assigns to it
            running.metadata.drain_replica_set("rs2", draining=False)
        if not record.draining:
            raise Refused("it may be given partitions")

    with pytest.raises(Refused, match=r"may be given"):
        running.metadata.remove_replica_set("rs2", check)
    assert len(looked) == 2, "the removal has noticed the change, and looked again"
    assert "rs2" in running.metadata.replica_sets()


def test_an_assignment_that_is_planned_before_the_drain_is_not_committed_after_it(running: Cluster) -> None:
    control = running.metadata.control(NAME)
    wanted = msgspec.structs.replace(control, assignment={"rs2": ALL}, assignment_epoch=2)
    rounds = []

    def drained_meanwhile() -> tuple[Operation, ...]:
        required = running.metadata.may_take_partitions(["rs2"])
        if not rounds:
            running.metadata.drain_replica_set("rs2", draining=True)
        rounds.append(1)
        return required

    with pytest.raises(Refused, match=r"takes no partitions"):
        running.metadata.update_control(NAME, lambda _: wanted, requires=drained_meanwhile)
    assert running.metadata.control(NAME) == control


def test_a_receiver_is_removed_once_it_has_stopped_and_another_one_lives(running: Cluster) -> None:
    def refused(receiver: str, match: str) -> None:
        with pytest.raises(Refused, match=rf"receiver {receiver} cannot be removed.*{match}"):
            running.client.remove_receiver(receiver)
        assert receiver in running.metadata.receivers()

    refused("r1", f"partitions of {NAME}; found it is the last living one")
    running.receiver("r3", "rs1")
    refused("r1", "its session lives.*stop it")
    leave(running, "r1")
    running.client.remove_receiver("r1")
    assert set(running.metadata.receivers()) == {"r2", "r3"}
    assert running.client.replica_sets()[0].receivers == ("r3",)
    refused("r3", "the last living one")
    leave(running, "r3")
    refused("r3", "none lives.*drain rs1")
    refused("r2", "its session lives")
    with pytest.raises(NotFound):
        running.client.remove_receiver("r1")


def test_a_receiver_of_a_replica_set_without_partitions_is_removed(running: Cluster) -> None:
    leave(running, "r2")
    running.client.remove_receiver("r2")
    assert running.metadata.replica_sets()["rs2"].receivers == ()


def test_a_replica_set_with_partitions_is_not_left_to_the_dead_by_its_definition_either(
    running: Cluster,
) -> None:
    running.receiver("r3", "rs1")
    leave(running, "r3")
    with pytest.raises(Refused, match=r"without a living receiver"):
        running.client.put_replica_set("rs1", ["r3"])
    assert running.client.put_replica_set("rs1", ["r1"]).receivers == ("r1",)


@pytest.mark.parametrize("lost", ["before", "after"])
def test_a_lost_answer_of_the_store_removes_once(running: Cluster, lost: Literal["before", "after"]) -> None:
    drain(running, "rs2")
    leave(running, "r2")
    faults = [lost]
    running.ensemble.fault = lambda operations: faults.pop() if faults else None
    running.client.remove_replica_set("rs2")
    assert faults == []
    assert set(running.metadata.replica_sets()) == {"rs1"}


def test_a_repeated_removal_leaves_what_was_made_meanwhile(running: Cluster) -> None:
    drain(running, "rs2")
    leave(running, "r2")
    headers = {HEADER: "0123456789abcdef0123456789abcdef"}
    assert running.http.delete("/api/v1/replica-sets/rs2", headers=headers).is_success
    running.receiver("r2", "rs2")
    assert running.http.delete("/api/v1/replica-sets/rs2", headers=headers).is_success
    assert running.metadata.replica_sets()["rs2"].receivers == ("r2",)


# -- commands -------------------------------------------------------------------------------------------


@pytest.fixture
def command(running: Cluster, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    monkeypatch.setattr(running.client, "close", lambda: None)  # the command closes what it opens
    for module in (receivers, retirement):
        monkeypatch.setattr(module, "coordinator_client", lambda: running.client)
    monkeypatch.setattr(operations.time, "sleep", lambda _: let_moves_end(running))

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(receivers.app, [*arguments], env={"COLUMNS": "160"})
        assert result.exit_code == 0, (result.output, result.exception)
        return result.stdout

    return run


def test_the_commands_drain_and_remove(running: Cluster, command: Callable[..., str]) -> None:
    another_cube(running)
    assert "0=rs2, 1=rs2" in command("drain", "rs1", "--dry-run")
    assert "yes" not in command("replica-sets")
    text = command("drain", "rs1", "--yes")
    assert "2 cubes left; moving: clicks_by_page (assignment 2)" in text
    assert "1 cubes left; moving: other (assignment 3)" in text
    assert "no cube has partitions in rs1: stop its receivers" in text
    assert "rs1\tr1\t\tyes" in command("replica-sets")
    leave(running, "r1")
    assert "is removed" in command("remove-set", "rs1")
    running.receiver("r3", "rs2")
    leave(running, "r3")
    assert "receiver r3 is removed" in command("remove", "r3")
    running.receiver("r4", "rs4")
    leave(running, "r4")
    command("drain", "rs4", "--yes")
    removed = json.loads(command("remove-set", "rs4", "--json"))
    assert removed == {"removed": "rs4", "kind": "replica set"}


def test_the_command_undoes_a_drain(running: Cluster, command: Callable[..., str]) -> None:
    begun = Drain.model_validate_json(command("drain", "rs1", "--yes", "--wait-s", "0", "--json"))
    assert [one.planned_epoch for one in begun.cubes] == [2]
    assert json.loads(command("drain", "rs1", "--undo", "--json")) == {
        "replica_set": "rs1",
        "draining": False,
        "cubes_max": 1,
        "cubes": [],
    }


def test_a_drain_that_takes_too_long_says_what_it_waits_for(
    running: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations.time, "sleep", lambda _: None)
    with pytest.raises(NotYet, match=r"still has partitions after 0\.01 s.*has not begun to warm up"):
        operations.drained_replica_set(running.client, "rs1", cubes_max=1, wait_s=0.01)


def test_a_drain_that_somebody_has_to_help_does_not_wait(running: Cluster) -> None:
    running.client.pause_cube(NAME)
    with pytest.raises(Refused, match=r"still has partitions.*is paused"):
        operations.drained_replica_set(running.client, "rs1", cubes_max=1, wait_s=600)
