"""A unit belongs to the newest of its owners: what others say of it is void, over leaders too."""

from __future__ import annotations

from typing import Any

from rtolap.testing.application_reports import NAME, Reporter, counters, declared, now, registered, takeover
from rtolap.testing.coordinator_harness import Cluster

UNIT = "sessions/job/0"


def unit(generation: int, oldest_work_ms: int | None, **more: Any) -> dict[str, Any]:
    return {
        "level": "sessions",
        "processor": "job",
        "generation": generation,
        "oldest_work_ms": oldest_work_ms,
        **more,
    }


def output_ms(cluster: Cluster) -> int | None:
    cluster.coordinator.applications.tick()
    return cluster.client.application_watermarks(NAME).levels["sessions"].output_ms


def two_owners(cluster: Cluster) -> tuple[Reporter, Reporter, int]:
    """A first owner, who was stopped, and his successor with old work; the source is far beyond that."""
    first = declared(cluster)
    registered(cluster, "a")
    second = Reporter(cluster, "c2")
    work_ms = now(cluster, 60_000)
    first.send(units=[unit(1, work_ms)])
    second.send(units=[unit(2, work_ms)])
    second.progress(0, a=now(cluster))
    assert output_ms(cluster) == work_ms
    return first, second, work_ms


def test_a_stopped_owner_that_goes_on_finishes_nothing_of_its_successor(cluster: Cluster) -> None:
    first, second, work_ms = two_owners(cluster)
    answer = first.send(units=[unit(1, None)])
    why = "generation 1 is over, the unit's owner is of generation 2"
    assert answer["refused"] == [{"what": UNIT, "why": why}]
    assert output_ms(cluster) == work_ms
    assert counters(cluster)["stale_units"] == 1
    second.send(units=[unit(2, None)])
    assert output_ms(cluster) == now(cluster)


def test_a_stopped_owner_cannot_leave_in_place_of_its_successor(cluster: Cluster) -> None:
    first, _, work_ms = two_owners(cluster)
    assert first.send(units=[unit(1, None, left=True)])["refused"]
    assert output_ms(cluster) == work_ms
    assert cluster.client.application(NAME).units == 1


def test_the_next_leader_knows_the_successor_before_it_has_heard_it(cluster: Cluster) -> None:
    first, second, work_ms = two_owners(cluster)
    takeover(cluster)
    first.progress(0, a=now(cluster))
    assert first.send(units=[unit(1, None)])["refused"]
    assert output_ms(cluster) == work_ms, "the successor is awaited"
    second.send(units=[unit(2, None)])
    assert output_ms(cluster) == now(cluster)


def test_an_older_owner_after_the_newest_has_left_only_holds(cluster: Cluster) -> None:
    first, second, _ = two_owners(cluster)
    second.send(units=[unit(2, None, left=True)])
    reached_ms = output_ms(cluster)
    assert reached_ms == now(cluster)
    assert not first.send(units=[unit(1, now(cluster, 60_000))])["refused"]
    assert output_ms(cluster) == reached_ms


def test_a_generation_below_zero_is_refused_and_counted(cluster: Cluster) -> None:
    first, _, work_ms = two_owners(cluster)
    assert "generations count from 0" in first.send(units=[unit(-1, None)])["refused"][0]["why"]
    assert counters(cluster)["unknown_units"] == 1
    assert output_ms(cluster) == work_ms
