"""A cube says which of its receivers are held, why, since when, and what statements wait for."""

from __future__ import annotations

import pytest
from rtolap.coordinator.heartbeats import SILENT_AFTER_MS
from rtolap.protocols.coordinator.messages import CubeReport, HeartbeatRequest, PartitionReport

from tests.support.cubes.coordinator_harness import NAME, Cluster

SINCE_MS = 1_700_000_000_000
SINCE = "2023-11-14T22:13:20+00:00"
REASON = "101 closed segments wait for history, at most 100 may"


def _tell(cluster: Cluster, *, behind: dict[int, int] | None = None, held: bool = True) -> None:
    report = CubeReport(
        state="PAUSED" if held else "CONSUMING",
        reason=REASON if held else "",
        assignment_epoch=1,
        partitions={0: PartitionReport(position=120)},
        held_since_ms=SINCE_MS if held else None,
        behind=behind or {},
    )
    cluster.client.heartbeat(HeartbeatRequest(receiver_id="r1", replica_set="rs1", cubes={NAME: report}))


def test_a_held_receiver_and_what_it_owes_stand_in_the_problem(cluster: Cluster) -> None:
    cluster.enabled()
    _tell(cluster, behind={0: 450})
    assert cluster.client.cube(NAME).problem == (
        f"receiver r1 is held since {SINCE}: {REASON}; "
        "statements wait for what was answered before: partition 0 is at offset 120 of 450"
    )


def test_a_held_receiver_that_owes_nothing_is_named_too(cluster: Cluster) -> None:
    cluster.enabled()
    _tell(cluster)
    assert cluster.client.cube(NAME).problem == f"receiver r1 is held since {SINCE}: {REASON}"


def test_a_receiver_that_reads_is_no_problem(cluster: Cluster) -> None:
    cluster.enabled()
    _tell(cluster, held=False)
    assert cluster.client.cube(NAME).problem is None


def test_a_pause_that_was_asked_for_is_a_problem_only_where_statements_wait(cluster: Cluster) -> None:
    cluster.enabled()
    cluster.client.pause_cube(NAME)
    _tell(cluster)
    assert cluster.client.cube(NAME).problem is None
    _tell(cluster, behind={0: 450})
    assert "partition 0 is at offset 120 of 450" in (cluster.client.cube(NAME).problem or "")


def test_a_receiver_that_is_silent_says_nothing_about_now(cluster: Cluster) -> None:
    cluster.enabled()
    _tell(cluster)
    cluster.clock.advance_ms(SILENT_AFTER_MS + 1)
    assert cluster.client.cube(NAME).problem is None


@pytest.mark.parametrize("step_ms", [-3_600_000, 3_600_000])
def test_a_clock_that_is_set_makes_no_receiver_silent_and_none_heard_again(
    cluster: Cluster, step_ms: int
) -> None:
    cluster.enabled()
    _tell(cluster)
    problem = cluster.client.cube(NAME).problem
    assert problem is not None
    cluster.clock.set_by_ms(step_ms)
    assert cluster.client.cube(NAME).problem == problem
    cluster.clock.advance_ms(SILENT_AFTER_MS + 1)
    assert cluster.client.cube(NAME).problem is None
