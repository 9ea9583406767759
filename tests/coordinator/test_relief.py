"""What the leader does about replica sets that are drained, missing or lost, and goes on with by itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from rtolap.base.errors import NotFound
from rtolap.cli import receivers
from rtolap.coordinator.retirement.drains import NEXT_IN_LINE
from rtolap.coordinator.retirement.states import (
    TABLE,
    Action,
    Look,
    Looked,
    Mark,
    SetState,
    duties,
    looks,
)
from rtolap.protocols.coordinator.messages import ReassignRequest
from typer.testing import CliRunner

from tests.coordinator.test_metrics import page
from tests.coordinator.test_retirement import ALL, OTHER, all_serve, another_cube, drain, leave, serve
from tests.support.cubes.coordinator_harness import NAME, Cluster

LOST_AFTER_S = 60

# -- the table ------------------------------------------------------------------------------------------


def test_the_table_has_a_row_for_all_that_can_be_seen() -> None:
    assert set(TABLE) == set(itertools.product(Mark, Look, (True, False)))


@pytest.mark.parametrize(("row", "duty"), TABLE.items())
def test_each_row_does_what_its_state_asks(row: tuple[Mark, Look, bool], duty: object) -> None:
    mark, look, holds = row
    actions = TABLE[row].actions
    assert (Action.FORGET in actions) == (look is Look.LIVES)
    assert (Action.NOTE in actions) == (look is not Look.LIVES)
    gives = holds and (mark is Mark.DRAINED or look is Look.LOST)
    assert (Action.GIVE in actions) == (holds and look is Look.LOST), (
        "nobody answers whom others could relieve"
    )
    assert (Action.MOVE in actions) == (gives and look is not Look.LOST)
    assert (Action.KEEP in actions) == (holds and not gives), "what is planned for it is cancelled"
    assert (TABLE[row].state in (SetState.DRAINING, SetState.DRAINED)) == (mark is Mark.DRAINED)
    assert (TABLE[row].state is SetState.DRAINED) == (mark is Mark.DRAINED and not holds)


def missing(since_ms: int | None, *, holds: bool = True, draining: bool = False) -> Looked:
    return Looked(draining=draining, lives=False, holds=holds, missing_since_ms=since_ms)


LIVING = Looked(draining=False, lives=True, holds=True)
SPARE = Looked(draining=False, lives=True, holds=False)


@pytest.mark.parametrize(
    ("sets", "lost_after_ms", "look"),
    [
        ({"a": missing(0), "b": LIVING}, 60_000, Look.LOST),
        ({"a": missing(1), "b": LIVING}, 60_000, Look.MISSING),
        ({"a": missing(None), "b": LIVING}, 60_000, Look.MISSING),
        ({"a": missing(0), "b": LIVING}, 0, Look.MISSING),
        ({"a": missing(0), "b": SPARE}, 60_000, Look.LOST),
        ({"a": missing(0), "b": missing(0), "c": LIVING}, 60_000, Look.MISSING),
        ({"a": missing(0), "b": missing(0), "c": LIVING, "d": SPARE}, 60_000, Look.LOST),
        ({"a": missing(0), "b": missing(0, holds=False), "c": LIVING}, 60_000, Look.LOST),
        ({"a": missing(0)}, 60_000, Look.MISSING),
        ({"a": LIVING}, 60_000, Look.LIVES),
    ],
)
def test_a_replica_set_is_lost_after_its_time_unless_most_are_away(
    sets: dict[str, Looked], lost_after_ms: int, look: Look
) -> None:
    assert looks(sets, 60_000, lost_after_ms)["a"] is look


def test_a_drained_one_moves_whether_it_lives_or_not() -> None:
    for one in (missing(None, draining=True), missing(0, draining=True)):
        assert duties({"a": one, "b": LIVING}, 60_000, 60_000)["a"].state is SetState.DRAINING


# -- drains that go on by themselves --------------------------------------------------------------------


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Cluster]:
    """A cube on rs1 alone, whose receiver is up to date, with a second replica set."""
    cluster = Cluster(tmp_path, lost_after_s=LOST_AFTER_S)
    cluster.enabled()
    cluster.receiver("r2", "rs2")
    serve(cluster, "r1", "rs1")
    yield cluster
    cluster.close()


def look(cluster: Cluster) -> None:
    """The leader looks at replica sets, with all that its watches have brought."""
    cluster.ensemble.settle()
    cluster.coordinator.relief.tick()


def moves_end(cluster: Cluster) -> None:
    """All that live report twice; the leader lets moves stand, and looks at replica sets in between."""
    for _ in range(2):
        living = set(cluster.metadata.live_receivers())
        for name, replica_set in cluster.metadata.replica_sets().items():
            for receiver in living & set(replica_set.receivers):
                serve(cluster, receiver, name)
        cluster.ensemble.settle()
        for cube in cluster.metadata.cubes():
            cluster.coordinator.moves.tick(cube, cluster.metadata.control(cube))
        look(cluster)


def next_leader(cluster: Cluster) -> None:
    """Another one leads: what was in memory is gone."""
    cluster.coordinator._begin()


def test_the_leader_goes_on_with_a_drain_that_nobody_repeats(running: Cluster) -> None:
    another_cube(running)
    assert [one.planned_epoch for one in drain(running).cubes] == [2, None]
    for _ in range(3):
        moves_end(running)
    assert running.client.cube(NAME).assignment == {"rs2": ALL}
    assert running.client.cube(OTHER).assignment == {"rs2": ALL}
    assert running.client.drain_progress("rs1").cubes == ()
    assert running.client.cube(OTHER).assigned_because == "replica set rs1 is drained"
    assert running.client.replica_sets()[0].state == "DRAINED"


def test_the_bound_of_cubes_stands_in_the_record_and_the_next_leader_keeps_it(running: Cluster) -> None:
    another_cube(running)
    drain(running)
    assert running.metadata.replica_sets()["rs1"].cubes_max == 1
    next_leader(running)
    all_serve(running)
    look(running)
    assert running.metadata.control(OTHER).next is None
    progress = running.client.drain_progress("rs1")
    assert (progress.draining, progress.cubes_max) == (True, 1)
    assert progress.cubes[1].waits == (NEXT_IN_LINE,)
    drain(running, cubes_max=2)
    assert running.metadata.control(OTHER).next is not None
    assert running.client.drain_progress("rs1").cubes_max == 2


def test_progress_changes_nothing(running: Cluster) -> None:
    another_cube(running)
    shown = running.client.drain_progress("rs1")
    assert (shown.draining, len(shown.cubes)) == (False, 2)
    assert running.metadata.control(NAME).next is None
    with pytest.raises(NotFound):
        running.client.drain_progress("nobody")


def test_what_keeps_a_cube_is_shown_and_it_moves_once_that_is_gone(running: Cluster) -> None:
    another_cube(running)
    running.client.pause_cube(NAME)
    assert drain(running).cubes[1].planned_epoch == 3
    look(running)
    kept = running.client.drain_progress("rs1").cubes[0]
    assert "is paused" in kept.refused
    running.client.resume_cube(NAME)
    for _ in range(3):
        moves_end(running)
    assert running.client.drain_progress("rs1").cubes == ()


def test_an_undone_drain_keeps_what_it_has_also_where_the_one_who_undid_it_died(running: Cluster) -> None:
    another_cube(running)
    drain(running, cubes_max=2)
    running.metadata.drain_replica_set("rs1", draining=False)  # and the coordinator is gone
    next_leader(running)
    look(running)
    look(running)
    assert running.metadata.control(NAME).next is None
    assert running.metadata.control(OTHER).next is None
    moves_end(running)
    assert running.client.cube(NAME).assignment == {"rs1": ALL}


def test_a_move_that_somebody_has_asked_for_is_none_of_the_leaders(running: Cluster) -> None:
    running.client.reassign(NAME, ReassignRequest(assignment={"rs2": ALL}, warm_up=True))
    look(running)
    drain(running, undo=True)
    assert running.metadata.control(NAME).next is not None


def test_a_drain_that_is_undone_while_a_move_is_planned_plans_nothing(
    running: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = running.topics.offsets

    def meanwhile(topic: str, which: str) -> dict[int, int]:
        if which == "earliest":
            running.metadata.drain_replica_set("rs1", draining=False)
        return offsets(topic, which)

    monkeypatch.setattr(running.topics, "offsets", meanwhile)
    (cube,) = drain(running).cubes
    assert cube.planned_epoch is None
    assert running.metadata.control(NAME).next is None


def test_a_move_whose_taker_is_drained_itself_goes_elsewhere(running: Cluster) -> None:
    running.receiver("r3", "rs3")
    drain(running)
    planned = running.metadata.control(NAME).next
    assert planned is not None
    taker = next(iter(planned.assignment))
    drain(running, taker)
    look(running)
    again = running.metadata.control(NAME).next
    assert again is not None
    assert set(again.assignment) == {"rs2", "rs3"} - {taker}
    assert again.epoch > planned.epoch


# -- lost replica sets ----------------------------------------------------------------------------------


def lose(cluster: Cluster) -> None:
    leave(cluster, "r1")
    look(cluster)


def later(cluster: Cluster, seconds: float) -> None:
    cluster.clock.advance_ms(round(seconds * 1000))
    look(cluster)


def test_partitions_of_a_lost_replica_set_move_and_the_reason_is_recorded(running: Cluster) -> None:
    another_cube(running)
    lose(running)
    later(running, LOST_AFTER_S - 1)
    status = running.client.cube(NAME)
    assert status.next_epoch is None
    assert "no receiver of replica set rs1 has lived since 2001-09-09T01:46:40" in (status.problem or "")
    assert "its partitions move to others from 2001-09-09T01:47:40" in (status.problem or "")
    later(running, 1)
    assert running.client.replica_sets()[0].state == "LOST"
    found = page(running)
    assert found("rtolap_coordinator_replica_sets", state="LOST") == 1
    assert found("rtolap_coordinator_replica_set_missing_seconds", replica_set="rs1") == LOST_AFTER_S
    assert found("rtolap_coordinator_relief_moves_total", replica_set="rs1") == 2, "both cubes at a time"
    look(running)
    for cube in (NAME, OTHER):
        status = running.client.cube(cube)
        assert status.assignment == {"rs2": ALL}
        since = "no receiver of replica set rs1 had lived since 2001-09-09T01:46:40"
        assert status.assigned_because.startswith(since)
        assert "RTOLAP_REPLICA_SET_LOST_AFTER_S=60" in status.assigned_because
        assert status.problem is None, "nothing depends on it any more"


def test_one_that_comes_back_before_its_time_keeps_all(running: Cluster) -> None:
    lose(running)
    later(running, LOST_AFTER_S - 1)
    running.metadata.announce_live("r1", "again")
    look(running)
    assert running.metadata.replica_sets()["rs1"].missing_since_ms is None
    assert running.client.replica_sets()[0].problem is None
    later(running, 10 * LOST_AFTER_S)
    leave(running, "r1")
    look(running)
    later(running, LOST_AFTER_S - 1)
    assert running.metadata.control(NAME).assignment == {"rs1": ALL}, "the time begins anew"


@pytest.mark.parametrize("by", ["a person", "the drain"])
def test_a_move_that_runs_when_a_replica_set_is_lost_does_not_keep_its_partitions(
    running: Cluster, by: str
) -> None:
    """It would wait for receivers that are gone, or for history that only a new owner can bring on."""
    if by == "a person":
        wanted = ReassignRequest(assignment={"rs1": (0, 1), "rs2": (2, 3)}, warm_up=True)
        running.client.reassign(NAME, wanted)
    else:
        drain(running)
    planned = running.metadata.control(NAME).next
    assert planned is not None
    lose(running)
    later(running, LOST_AFTER_S - 1)
    assert running.metadata.control(NAME).next == planned, "it may end yet"
    later(running, 1)
    control = running.metadata.control(NAME)
    assert (control.next, control.assignment) == (None, {"rs2": ALL})
    assert control.assignment_epoch > planned.epoch


def test_one_that_comes_back_afterwards_has_nothing_and_may_be_given_partitions(running: Cluster) -> None:
    lose(running)
    later(running, LOST_AFTER_S)
    running.metadata.announce_live("r1", "again")
    look(running)
    assert running.client.cube(NAME).assignment == {"rs2": ALL}
    look(running)
    assert running.client.replica_sets()[0].state == "SERVING"
    all_serve(running)
    assert running.client.reassign(NAME, ReassignRequest(assignment={"rs1": ALL}, warm_up=False)).applied


def test_the_time_counts_over_changes_of_the_leader(running: Cluster) -> None:
    lose(running)
    for _ in range(LOST_AFTER_S):
        assert running.metadata.control(NAME).assignment == {"rs1": ALL}
        next_leader(running)
        later(running, 1)
    assert running.metadata.control(NAME).assignment == {"rs2": ALL}


def test_a_replica_set_that_lives_again_while_its_loss_is_planned_keeps_all(
    running: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(running)
    offsets = running.topics.offsets

    def meanwhile(topic: str, which: str) -> dict[int, int]:
        running.metadata.note_missing("rs1", None)
        return offsets(topic, which)

    monkeypatch.setattr(running.topics, "offsets", meanwhile)
    later(running, LOST_AFTER_S)
    assert running.metadata.control(NAME).assignment == {"rs1": ALL}


def test_only_what_is_lost_moves(running: Cluster) -> None:
    """Another replica set of the cube is away for a moment: it keeps its partitions."""
    for number in (3, 4, 5):
        running.receiver(f"r{number}", f"rs{number}")
    running.client.reassign(NAME, ReassignRequest(assignment={"rs1": (0, 1), "rs2": (2, 3)}, warm_up=False))
    all_serve(running)
    lose(running)
    later(running, LOST_AFTER_S - 1)
    leave(running, "r2")
    look(running)
    later(running, 1)
    assignment = running.metadata.control(NAME).assignment
    assert assignment["rs2"] == (2, 3)
    assert "rs1" not in assignment


def test_a_drain_whose_taker_is_lost_goes_elsewhere(running: Cluster) -> None:
    for number in (3, 4):
        running.receiver(f"r{number}", f"rs{number}")
    drain(running)
    planned = running.metadata.control(NAME).next
    assert planned is not None
    taker = min(planned.assignment)
    leave(running, taker.replace("rs", "r"))
    look(running)
    later(running, LOST_AFTER_S - 1)
    assert running.metadata.control(NAME).next == planned, "it may come back"
    running.clock.advance_ms(1_000)
    serve(running, "r1", "rs1")
    look(running)
    again = running.metadata.control(NAME).next
    assert again is not None
    assert taker not in again.assignment


def test_a_drained_one_that_answers_does_not_move_at_once_with_a_lost_one(running: Cluster) -> None:
    running.receiver("r3", "rs3")
    running.client.reassign(NAME, ReassignRequest(assignment={"rs1": (0, 1), "rs2": (2, 3)}, warm_up=False))
    lose(running)
    running.metadata.drain_replica_set("rs2", draining=True)
    later(running, LOST_AFTER_S)
    assert running.metadata.control(NAME).assignment == {"rs2": (2, 3), "rs3": (0, 1)}


def test_others_that_have_not_caught_up_do_not_hold_up_a_lost_one(running: Cluster) -> None:
    """They may wait for history, which lacks the lost one's events until somebody else reads them."""
    running.client.reassign(NAME, ReassignRequest(assignment={"rs1": (0, 1), "rs2": (2, 3)}, warm_up=False))
    lose(running)
    running.coordinator.heartbeats.clear()
    later(running, LOST_AFTER_S)
    assert running.metadata.control(NAME).assignment == {"rs2": ALL}


def test_what_keeps_a_cube_of_a_lost_replica_set_is_shown(running: Cluster) -> None:
    lose(running)
    running.topics.logs["clicks"] = dict.fromkeys(range(4), (900, 1000))
    later(running, LOST_AFTER_S)
    assert "cannot be read again" in running.client.drain_progress("rs1").cubes[0].refused
    assert running.metadata.control(NAME).assignment == {"rs1": ALL}


def test_one_without_partitions_is_no_problem_and_commands_name_one_that_has_some(
    running: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running.client, "close", lambda: None)  # the command closes what it opens
    monkeypatch.setattr(receivers, "coordinator_client", lambda: running.client)
    leave(running, "r2")
    look(running)
    look(running)
    assert [one.problem for one in running.client.replica_sets()] == [None, None]
    lose(running)
    look(running)
    listed = CliRunner().invoke(receivers.app, ["list"])
    assert "no receiver of replica set rs1 has lived since" in listed.output
    assert "replica set rs2" not in listed.output


def test_nothing_moves_where_the_time_is_none(cluster: Cluster) -> None:
    cluster.enabled()
    cluster.receiver("r2", "rs2")
    lose(cluster)
    later(cluster, 1_000_000)
    assert cluster.metadata.control(NAME).assignment == {"rs1": ALL}
    problem = cluster.client.replica_sets()[0].problem or ""
    assert "start one, or `rtolap receivers drain rs1`" in problem
