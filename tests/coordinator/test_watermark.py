from __future__ import annotations

import pytest
from rtolap.coordinator.watermark import Observation, low_watermark_ms
from rtolap.metadata.records import WatermarkRecord
from rtolap.protocols.coordinator.messages import CubeReport, HeartbeatRequest, PartitionReport

from tests.support.cubes.coordinator_harness import NAME, Cluster


def seen(
    watermark_ms: int | None, *, idle: bool = False, position: int = 1, fresh: bool = True
) -> Observation:
    return Observation(position, watermark_ms, idle, fresh)


@pytest.mark.parametrize(
    ("observations", "previous_ms", "expected_ms"),
    [
        pytest.param({0: [seen(50)], 1: [seen(30)]}, None, 30, id="the minimum"),
        pytest.param({0: [seen(50)]}, None, None, id="a partition never reported: unknown"),
        pytest.param({0: [seen(50)]}, 20, 20, id="a partition never reported holds it"),
        pytest.param({0: [seen(50)], 1: [seen(None)]}, 20, 20, id="one without an event holds it"),
        pytest.param({0: [seen(50)], 1: [seen(30, idle=True)]}, None, 50, id="an idle one is left out"),
        pytest.param({0: [seen(50)], 1: [seen(None, idle=True)]}, None, 50, id="idle and empty too"),
        pytest.param({0: [seen(50, idle=True)], 1: [seen(30, idle=True)]}, None, 50, id="all idle: maximum"),
        pytest.param({0: [seen(None, idle=True)], 1: [seen(None, idle=True)]}, None, None, id="all empty"),
        pytest.param({0: [seen(50)], 1: [seen(30), seen(40)]}, None, 40, id="replicas: the larger"),
        pytest.param({0: [seen(50)], 1: [seen(30)]}, 45, 45, id="never backwards"),
        pytest.param(
            {0: [seen(50)], 1: [seen(30, idle=True, position=5), seen(30, position=9)]},
            None,
            30,
            id="idle only if the furthest replica says so",
        ),
        pytest.param(
            {0: [seen(50)], 1: [seen(30, idle=True, fresh=False)]}, None, 30, id="an old word is not idle"
        ),
    ],
)
def test_the_rule(
    observations: dict[int, list[Observation]], previous_ms: int | None, expected_ms: int | None
) -> None:
    assert low_watermark_ms([0, 1], observations, previous_ms) == expected_ms


def test_a_cube_without_partitions_has_no_watermark() -> None:
    assert low_watermark_ms([], {}, None) is None


def beat(cluster: Cluster, watermarks_ms: dict[int, int]) -> dict[str, int]:
    reports = {p: PartitionReport(position=1, watermark_ms=ms) for p, ms in watermarks_ms.items()}
    request = HeartbeatRequest(
        receiver_id="r1", replica_set="rs1", cubes={NAME: CubeReport(state="CONSUMING", partitions=reports)}
    )
    return cluster.client.heartbeat(request).low_watermark_ms


def test_it_is_persisted_before_it_is_told(cluster: Cluster) -> None:
    cluster.enabled()
    assert beat(cluster, {0: 10, 1: 20, 2: 30, 3: 40}) == {}
    cluster.coordinator.tick()
    assert cluster.metadata.published_watermark_ms(NAME) == 10
    assert beat(cluster, {0: 15, 1: 20, 2: 30, 3: 40}) == {NAME: 10}
    assert cluster.client.watermark(NAME).low_watermark_ms == 10
    assert cluster.client.watermark(NAME).partitions[0].watermark_ms == 15


def report(cluster: Cluster, *said: PartitionReport) -> int | None:
    cube = CubeReport(state="CONSUMING", partitions=dict(enumerate(said)))
    cluster.client.heartbeat(HeartbeatRequest(receiver_id="r1", replica_set="rs1", cubes={NAME: cube}))
    cluster.coordinator.tick()
    return cluster.client.watermark(NAME).low_watermark_ms


def active(at_ms: int | None) -> PartitionReport:
    return PartitionReport(position=1, watermark_ms=at_ms)


def idle(at_ms: int | None) -> PartitionReport:
    return PartitionReport(position=1, watermark_ms=at_ms, idle=True)


def test_a_partition_that_is_idle_from_the_beginning_holds_nobody_up(cluster: Cluster) -> None:
    cluster.enabled()
    assert report(cluster, active(50), active(60), active(70), idle(None)) == 50
    assert report(cluster, active(50), active(60), active(70), active(10)) == 50, "its first event is late"
    assert report(cluster, active(80), active(90), active(70), active(60)) == 60


def test_when_all_are_idle_the_furthest_counts_until_one_goes_on(cluster: Cluster) -> None:
    cluster.enabled()
    assert report(cluster, idle(50), idle(60), idle(70), idle(None)) == 70
    assert report(cluster, active(55), idle(60), idle(70), idle(None)) == 70, "never smaller"
    assert report(cluster, active(75), idle(60), idle(70), idle(None)) == 75


def test_a_partition_whose_new_owner_has_seen_nothing_yet_holds_it(cluster: Cluster) -> None:
    cluster.enabled()
    assert report(cluster, active(50), active(60), active(70), active(40)) == 40
    assert report(cluster, active(90), active(90), active(90), active(None)) == 40


def test_a_leader_that_starts_over_goes_on_where_the_last_one_was(cluster: Cluster) -> None:
    """A fresh leader knows no heartbeat, then only those of some receivers, then smaller event times."""
    cluster.enabled()
    assert report(cluster, active(500), active(600), active(700), active(800)) == 500
    cluster.coordinator._begin()
    cluster.coordinator.tick()
    assert cluster.client.watermark(NAME).low_watermark_ms == 500
    assert report(cluster, active(900)) == 500, "three partitions have not been reported"
    assert report(cluster, active(100), active(100), active(100), active(100)) == 500
    assert report(cluster, active(900), active(900), active(900), active(900)) == 900


def test_a_new_leader_never_publishes_a_smaller_one(cluster: Cluster) -> None:
    cluster.enabled()
    cluster.metadata.publish_watermark(NAME, WatermarkRecord(1_000))
    beat(cluster, {0: 10, 1: 20, 2: 30, 3: 40})
    cluster.coordinator.tick()
    assert cluster.client.watermark(NAME).low_watermark_ms == 1_000
    assert cluster.metadata.publish_watermark(NAME, WatermarkRecord(500)) == WatermarkRecord(1_000)
