"""A partition that changes hands holds the watermark where its hosts were, also when hosts are released."""

from __future__ import annotations

from tests.support.cubes.coordinator_harness import Cluster
from tests.support.watermarks.application_reports import NAME, declared, now, registered

RELEASED_AFTER = 31  # turns, with which every host that may be released has been


def test_hosts_of_a_partition_that_has_just_changed_hands_are_not_released(cluster: Cluster) -> None:
    """One of ten hosts may be late. The new reader is behind and has met one of its hosts: two are late."""
    reporter = declared(cluster, rule={"host_precise": {"delayed_hosts_ppm": 100_000}})
    others = [f"c{at}" for at in range(8)]
    registered(cluster, "a", "b", *others)
    read_ms = now(cluster, 1_000)
    reporter.progress(0, a=read_ms, b=read_ms)
    reporter.progress(1, a=read_ms, **dict.fromkeys(others, read_ms))
    cluster.coordinator.tick()
    assert cluster.client.application_watermarks(NAME).global_ms == read_ms
    taken_over = {"level": "web", "partition": 0, "generation": 1, "progress": {"b": read_ms - 500}}
    reporter.send(sources=[taken_over])
    reporter.progress(1, a=now(cluster), **dict.fromkeys(others, now(cluster)))
    for _ in range(RELEASED_AFTER):
        cluster.coordinator.tick()
    assert cluster.client.application_watermarks(NAME).global_ms == read_ms
    reporter.send(sources=[{**taken_over, "progress": {"a": read_ms + 1, "b": read_ms + 2}}])
    cluster.coordinator.tick()
    assert cluster.client.application_watermarks(NAME).global_ms == read_ms + 2, "a alone may be late"
