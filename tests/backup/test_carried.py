from __future__ import annotations

from rtolap.backup.carried import RAISED_BY, carry
from rtolap.metadata import paths
from rtolap.metadata.codec import decode, encode
from rtolap.metadata.records import ApplicationState, ChangeLog, CubeControl, Owner, ReplicaSetRecord


def test_numbers_that_have_grown_since_the_backup_are_raised() -> None:
    control = CubeControl(enabled=True, generation_base=7, assignment_epoch=3, restored="before")
    state = ApplicationState(epoch=5, owner=Owner("/coordinator/election/1", "http://one"))
    gone = ReplicaSetRecord("left", ("r1",), missing_since_ms=1)
    other = {"/cubes/c/definition": b"{}", "/cubes/c/segments/control": b"[1]", "/fleet/f/plans/p": b"2"}
    carried = carry(
        {
            paths.cube_control("c"): encode(control),
            paths.cube_changes("c"): encode(ChangeLog("id", 9, ((9, "s"),))),
            paths.application_state("a"): encode(state),
            paths.replica_set("left"): encode(gone),
            **other,
        },
        "now",
    )
    assert other.items() <= carried.records.items()
    assert carried.findings == ()
    found = decode(carried.records[paths.cube_control("c")], CubeControl, "c")
    assert (found.restored, found.generation_base, found.assignment_epoch) == ("now", 7 + RAISED_BY, 3)
    log = decode(carried.records[paths.cube_changes("c")], ChangeLog, "c")
    assert log == ChangeLog("id", 9 + RAISED_BY), "whoever knows the log of before reads all again"
    application = decode(carried.records[paths.application_state("a")], ApplicationState, "a")
    assert (application.owner, application.epoch) == (None, 5 + RAISED_BY)
    replica_set = decode(carried.records[paths.replica_set("left")], ReplicaSetRecord, "left")
    assert replica_set == ReplicaSetRecord("left", ("r1",)), "receivers start after the restore"


def test_moves_of_a_fleet_do_not_go_on() -> None:
    records = {
        paths.fleet_current("k"): b"p1",
        paths.fleet_request("k", "r1"): b"{}",
        paths.fleet_request("k", "r2"): b"{}",
        paths.fleet_plan("k", "p1"): b"{}",
    }
    carried = carry(records, "now")
    assert set(carried.records) == {paths.fleet_plan("k", "p1")}
    assert [(each.outcome, each.subject) for each in carried.findings] == 2 * [("left", "fleet id-k")]
