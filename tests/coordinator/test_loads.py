"""The load of partitions out of heartbeats, and plans by load as the coordinator answers them."""

from __future__ import annotations

from typing import Any

import pytest
from rtolap.base.errors import NotYet, Refused
from rtolap.cli import receivers
from rtolap.coordinator.balance.loads import (
    CATCH_UP_S,
    POINTS,
    PartitionLoad,
    completed,
    points_of,
    reported_loads,
)
from rtolap.coordinator.heartbeats import SILENT_AFTER_MS, ReceivedHeartbeat
from rtolap.metadata.records import CubeControl
from rtolap.protocols.coordinator.messages import (
    CubeReport,
    HeartbeatRequest,
    PartitionReport,
    Reassignment,
    ReassignRequest,
)
from typer.testing import CliRunner

from tests.support.cubes.coordinator_harness import CUBE, NAME, Cluster

BY_LOAD = ReassignRequest(by="load", dry_run=True)


def partition(rate: float | None = 0.0, held: int | None = 0, lag: int = 0) -> PartitionReport:
    return PartitionReport(position=1000 - lag, log_end=1000, records_per_s=rate, held_bytes=held)


def heard(
    receiver: str, replica_set: str, partitions: dict[int, PartitionReport], state: str = "CONSUMING"
) -> ReceivedHeartbeat:
    report = CubeReport(state=state, assignment_epoch=1, partitions=partitions)
    return ReceivedHeartbeat(
        HeartbeatRequest(receiver_id=receiver, replica_set=replica_set, cubes={"c": report}), 0
    )


CONTROL = {"c": CubeControl(enabled=True, assignment={"rs1": (0, 1)}, assignment_epoch=1)}


def test_of_a_replica_set_the_furthest_reader_says_the_lag_and_the_fullest_the_bytes() -> None:
    beats = [
        heard("r1", "rs1", {0: partition(2.0, 50, 30), 1: partition(1.0, 5)}),
        heard("r2", "rs1", {0: partition(2.5, 40, 10)}),
        heard("r3", "rs2", {0: partition(99.0, 99), 1: partition(99.0, 99)}),
    ]
    assert reported_loads(CONTROL, beats, SILENT_AFTER_MS) == {
        ("c", 0): PartitionLoad(2.5, 10, 50),
        ("c", 1): PartitionLoad(1.0, 0, 5),
    }
    silent = reported_loads(CONTROL, beats, SILENT_AFTER_MS + 1)
    assert set(silent.values()) == {PartitionLoad()}


def test_what_is_read_again_is_no_lag() -> None:
    beats = [heard("r1", "rs1", {0: partition(2.0, 50, 30)}, "REPLAYING")]
    assert reported_loads(CONTROL, beats, 0)["c", 0] == PartitionLoad(2.0, None, 50)


def test_points_go_half_by_records_and_half_by_bytes() -> None:
    loads = {("c", 0): PartitionLoad(10.0, 0, 300), ("c", 1): PartitionLoad(0.0, 30 * CATCH_UP_S, 100)}
    assert points_of(loads) == {("c", 0): POINTS // 2, ("c", 1): POINTS // 2}
    assert points_of({owned: PartitionLoad(None, 0, load.held_bytes) for owned, load in loads.items()}) == {
        ("c", 0): 750_000,
        ("c", 1): 250_000,
    }, "bytes alone where rates are not known"
    assert points_of(dict.fromkeys(loads, PartitionLoad())) == dict.fromkeys(loads, POINTS // 2)
    assert points_of(dict.fromkeys(loads, PartitionLoad(0.0, 0, 0))) == dict.fromkeys(loads, 0)
    assert points_of({}) == {}


def test_what_is_not_known_of_some_is_the_mean_of_the_others() -> None:
    loads = {
        ("c", 0): PartitionLoad(10.0, 5, 300),
        ("c", 1): PartitionLoad(20.0, 0, 100),
        ("c", 2): PartitionLoad(),
    }
    assert completed(loads)["c", 2] == PartitionLoad(15.0, 0, 200)
    assert completed({("c", 2): PartitionLoad()})["c", 2] == PartitionLoad(None, 0, None)


# -- as the coordinator answers --------------------------------------------------------------------------


@pytest.fixture
def running(cluster: Cluster) -> Cluster:
    """A cube on rs1 alone, with a second replica set that has just come."""
    cluster.enabled()
    cluster.receiver("r2", "rs2")
    return cluster


def beat(
    cluster: Cluster,
    receiver: str,
    replica_set: str,
    partitions: dict[int, PartitionReport],
    cube: str = NAME,
    **report: Any,
) -> None:
    epoch = cluster.metadata.control(cube).assignment_epoch
    said = CubeReport(**{"state": "CONSUMING", "assignment_epoch": epoch, **report}, partitions=partitions)
    cluster.client.heartbeat(
        HeartbeatRequest(receiver_id=receiver, replica_set=replica_set, cubes={cube: said})
    )


def uneven(cluster: Cluster) -> None:
    """Partition 0 has most of the load: half is one large partition, half are three small ones."""
    small = partition(10.0, 1_000)
    beat(cluster, "r1", "rs1", {0: partition(30.0, 3_000), 1: small, 2: small, 3: small})


def test_a_plan_by_load_moves_the_heavy_partition_where_one_by_count_moves_two(running: Cluster) -> None:
    uneven(running)
    by_count = running.client.reassign(NAME, ReassignRequest(dry_run=True))
    assert (by_count.after, by_count.load) == ({"rs1": (0, 1), "rs2": (2, 3)}, None)
    plan = running.client.reassign(NAME, BY_LOAD)
    assert [(m.partition, m.source, m.target, m.load_percent) for m in plan.moves] == [
        (0, "rs1", "rs2", 50.0)
    ]
    assert (plan.after, plan.applied) == ({"rs1": (1, 2, 3), "rs2": (0,)}, False)
    assert plan.load is not None
    shown = [
        [
            (one.replica_set, one.partitions, one.load_percent, one.records_per_s, one.held_bytes)
            for one in side
        ]
        for side in (plan.load.before, plan.load.after)
    ]
    assert shown == [
        [("rs1", 4, 100.0, 60.0, 6_000), ("rs2", 0, 0.0, 0.0, 0)],
        [("rs1", 3, 50.0, 30.0, 3_000), ("rs2", 1, 50.0, 30.0, 3_000)],
    ]
    assert (plan.load.pays_percent, plan.load.unreported) == (2.5, ())


def test_a_second_plan_is_empty_once_the_first_stands(running: Cluster) -> None:
    uneven(running)
    plan = running.client.reassign(NAME, BY_LOAD.model_copy(update={"dry_run": False, "warm_up": False}))
    assert plan.applied
    with pytest.raises(NotYet, match=r"partitions \[0, 1, 2, 3\] are catching up"):
        running.client.reassign(NAME, BY_LOAD)
    beat(running, "r2", "rs2", {0: partition(30.0, 3_000)})
    beat(running, "r1", "rs1", dict.fromkeys((1, 2, 3), partition(10.0, 1_000)))
    second = running.client.reassign(NAME, BY_LOAD)
    assert (second.moves, second.applied) == ((), False)


def test_a_plan_by_load_warms_up(running: Cluster) -> None:
    uneven(running)
    planned = running.client.reassign(NAME, ReassignRequest(by="load", warm_up=True))
    assert (planned.planned_epoch, planned.applied) == (2, False)
    assert running.client.cube(NAME).next_assignment == {"rs1": (1, 2, 3), "rs2": (0,)}


def test_receivers_of_an_older_version_count_as_the_mean_and_are_named(running: Cluster) -> None:
    old = PartitionReport.model_validate({"position": 1000, "log_end": 1000})
    beat(running, "r1", "rs1", {0: partition(30.0, 3_000), 1: old, 2: old, 3: partition(10.0, 1_000)})
    plan = running.client.reassign(NAME, BY_LOAD)
    assert plan.load is not None
    assert plan.load.unreported == (1, 2)
    assert plan.load.before[0].records_per_s == 80.0
    beat(running, "r1", "rs1", dict.fromkeys(range(4), old))
    level = running.client.reassign(NAME, BY_LOAD)
    assert level.load is not None
    assert {name: len(owned) for name, owned in level.after.items()} == {"rs1": 2, "rs2": 2}
    assert (level.load.before[0].records_per_s, level.load.before[0].held_bytes) == (None, None)


def test_a_receiver_that_has_just_begun_to_measure_is_waited_for(running: Cluster) -> None:
    with pytest.raises(NotYet, match="are catching up"):
        running.client.reassign(NAME, BY_LOAD)
    beat(running, "r1", "rs1", {p: partition(None if p == 2 else 1.0, 10) for p in range(4)})
    with pytest.raises(NotYet, match=r"no rate of partitions \[2\]"):
        running.client.reassign(NAME, BY_LOAD)


def test_the_load_of_other_cubes_counts_and_stays(running: Cluster) -> None:
    running.client.create_cube({**CUBE, "name": "other", "consumer_tasks_max": 1})
    running.client.enable_cube("other")
    assert running.metadata.control("other").assignment == {"rs2": (0, 1, 2, 3)}
    uneven(running)
    beat(running, "r2", "rs2", dict.fromkeys(range(4), partition(15.0, 1_500)), cube="other")
    plan = running.client.reassign(NAME, BY_LOAD)
    assert plan.moves == ()
    assert plan.load is not None
    assert [one.load_percent for one in plan.load.before] == [50.0, 50.0]


def test_no_more_replica_sets_are_used_than_the_cube_permits(cluster: Cluster) -> None:
    cluster.receiver("r1", "rs1")
    cluster.define(consumer_tasks_max=1)
    cluster.client.enable_cube(NAME)
    cluster.receiver("r2", "rs2")
    uneven(cluster)
    assert cluster.client.reassign(NAME, BY_LOAD).moves == ()
    over = BY_LOAD.model_copy(update={"replica_sets": ("rs1", "rs2")})
    assert [m.partition for m in cluster.client.reassign(NAME, over).moves] == [0]
    away = BY_LOAD.model_copy(update={"replica_sets": ("rs2",)})
    assert cluster.client.reassign(NAME, away).after == {"rs2": (0, 1, 2, 3)}


def test_partitions_of_a_replica_set_without_receivers_move_away(running: Cluster) -> None:
    uneven(running)
    running.metadata.put_replica_set("rs1", ())
    plan = running.client.reassign(NAME, BY_LOAD)
    assert plan.after == {"rs2": (0, 1, 2, 3)}
    with pytest.raises(Refused, match="no such replica set"):
        running.client.reassign(NAME, BY_LOAD.model_copy(update={"replica_sets": ("nobody",)}))


@pytest.fixture
def command(running: Cluster, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(running.client, "close", lambda: None)  # the command closes what it opens
    monkeypatch.setattr(receivers, "coordinator_client", lambda: running.client)

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(receivers.app, [*arguments], env={"COLUMNS": "80"})
        assert result.exit_code == 0, (result.output, result.exception)
        return result.stdout

    return run


def test_the_dry_run_shows_loads_before_and_after(running: Cluster, command: Any) -> None:
    uneven(running)
    shown = command("rebalance", NAME, "--by", "load", "--dry-run")
    assert "rs1\tbefore\t100.0\t4\t60.0\t0\t6000" in shown
    assert "rs2\tafter\t50.0\t1\t30.0\t0\t3000" in shown
    assert "0\trs1\trs2\t0\t1000\t1000\t50.0" in shown
    plan = Reassignment.model_validate_json(command("rebalance", NAME, "--by", "load", "--dry-run", "--json"))
    assert plan.load is not None
    assert [one.load_percent for one in plan.load.after] == [50.0, 50.0]
    moved = Reassignment.model_validate_json(command("rebalance", NAME, "--by", "load", "--yes", "--json"))
    assert (moved.planned_epoch, moved.load) == (2, plan.load)
