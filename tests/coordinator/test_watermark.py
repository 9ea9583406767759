from __future__ import annotations

import pytest
from rtolap.coordinator.watermark import Observation, low_watermark_ms
from rtolap.testing.coordinator_harness import NAME, Cluster
from rtolap.wire.coordinator import CubeReport, HeartbeatRequest, PartitionReport


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


def test_a_new_leader_never_publishes_a_smaller_one(cluster: Cluster) -> None:
    cluster.enabled()
    cluster.metadata.publish_watermark_ms(NAME, 1_000)
    beat(cluster, {0: 10, 1: 20, 2: 30, 3: 40})
    cluster.coordinator.tick()
    assert cluster.client.watermark(NAME).low_watermark_ms == 1_000
    assert cluster.metadata.publish_watermark_ms(NAME, 500) == 1_000
