"""Tests of what a coordinator shows to Prometheus."""

from __future__ import annotations

from rtolap.protocols.coordinator.messages import CubeReport, HeartbeatRequest, PartitionReport

from tests.support.cubes.coordinator_harness import NAME, Cluster
from tests.support.cubes.metadata_contract import eventually
from tests.support.scrape import Scrape


def page(cluster: Cluster) -> Scrape:
    return Scrape(cluster.coordinator.metrics.registry.render()[0].decode())


def test_the_leader_shows_segments_receivers_and_its_rounds(cluster: Cluster) -> None:
    cluster.enabled()
    cluster.closed(0)
    behind = {0: PartitionReport(position=90, log_end=100), 1: PartitionReport(position=7, log_end=None)}
    cubes = {NAME: CubeReport(state="CONSUMING", partitions=behind)}
    cluster.client.heartbeat(HeartbeatRequest(receiver_id="r1", replica_set="rs1", cubes=cubes))
    cluster.clock.advance_ms(2_000)
    rounds = page(cluster)("rtolap_coordinator_tick_seconds_count")
    cluster.coordinator._ticks = 0  # its checks are due
    cluster.coordinator.tick()
    eventually(lambda: "rtolap_coordinator_segments" in page(cluster), "the checks have looked at the cube")

    found = page(cluster)
    assert found("rtolap_coordinator_tick_seconds_count") == rounds + 1
    assert found("rtolap_coordinator_leading") == 1
    assert found("rtolap_coordinator_zookeeper_connected") == 1
    assert found("rtolap_coordinator_segments", cube=NAME, state="REMOTE_PERSISTED") == 1
    assert found("rtolap_coordinator_lag_records", receiver="r1", cube=NAME) == 10
    assert found("rtolap_coordinator_heartbeat_age_seconds", receiver="r1") == 2

    segment = cluster.client.queue().entries[0].segment
    cluster.client.promote(NAME, segment, cluster.build(segment))
    eventually(
        lambda: page(cluster)("rtolap_coordinator_segments", cube=NAME, state="READY") == 1,
        "the watches have brought the promotion",
    )


def test_who_does_not_lead_shows_nothing_of_cubes(cluster: Cluster) -> None:
    cluster.enabled()
    cluster.closed(0)
    cluster.client.queue()
    assert "rtolap_coordinator_segments" in page(cluster)
    cluster.coordinator.leadership._election.close()
    found = page(cluster)
    assert found("rtolap_coordinator_leading") == 0
    assert "rtolap_coordinator_segments" not in found
    assert "rtolap_coordinator_lag_records" not in found


def test_the_leader_shows_builds_that_failed_and_the_end_of_what_waits(cluster: Cluster) -> None:
    cluster.enabled()
    cluster.closed(0)
    cluster.closed(1)
    first, *_ = cluster.client.queue().entries

    def shows(failed: int, end_s: float) -> bool:
        found = page(cluster)
        return (
            found("rtolap_coordinator_failed_builds", cube=NAME) == failed
            and found("rtolap_coordinator_waiting_segment_end_seconds", cube=NAME) == end_s
        )

    spec = cluster.client.start_build(NAME, first.segment)
    cluster.client.fail_build(NAME, first.segment, spec.build_id, "out of memory")
    eventually(lambda: shows(1, 3600), "its watches have brought the failure")
    cluster.client.promote(NAME, first.segment, cluster.build(first.segment))
    eventually(lambda: shows(0, 7200), "a later attempt has succeeded")
