"""What a receiver shows to Prometheus."""

from __future__ import annotations

from rtolap.cubes.receiver.metrics import ReceiverMetrics
from rtolap.protocols.receiver.messages import CubeStats, LocalSegmentStats, PartitionStats, ReceiverStats

from tests.support.scrape import Scrape


def stats(events: int) -> ReceiverStats:
    partitions = (
        PartitionStats(0, 40, 55, 9_500, False, events, {"malformed": 2, "no_time": 1}, late=4, dropped=3),
        PartitionStats(1, 60, None, None, True, 7, {"malformed": 5}),
        PartitionStats(2, 60, 58, 8_000, True, 0),  # read beyond the end that was known
    )
    segments = tuple(
        LocalSegmentStats(name, 1, state, 5, 5, 0, 100)
        for name, state in (("a", "ACTIVE"), ("b", "IMMUTABLE"), ("c", "ACTIVE"))
    )
    cube = CubeStats("c", "PAUSED", "", True, partitions, segments, cuboid_bytes=99, freshness_ms=250)
    return ReceiverStats("r0", "rs", "h:1", (cube,), 77)


def test_statistics_are_shown_as_they_are_at_the_scrape() -> None:
    present = stats(10)
    metrics = ReceiverMetrics(lambda: present)
    found = Scrape(metrics.registry.render()[0].decode())
    assert found("rtolap_receiver_events_total", cube="c", partition="0") == 10
    assert found("rtolap_receiver_late_events_total", cube="c") == 4
    assert found("rtolap_receiver_dropped_events_total", cube="c") == 3
    assert found("rtolap_receiver_refused_records_total", cube="c", reason="malformed") == 7
    assert found("rtolap_receiver_refused_records_total", cube="c") == 8
    assert found("rtolap_receiver_position_offset", partition="1") == 60
    assert found.labels("rtolap_receiver_lag_records", "partition") == {"0", "2"}
    assert found("rtolap_receiver_lag_records") == 15
    assert found("rtolap_receiver_watermark_seconds", partition="0") == 9.5
    assert found("rtolap_receiver_memory_table_bytes") == 77
    assert found("rtolap_receiver_cuboid_bytes", cube="c") == 99
    assert found("rtolap_receiver_freshness_seconds", cube="c") == 0.25
    assert found("rtolap_receiver_segments", state="ACTIVE") == 2
    assert found("rtolap_receiver_leading", cube="c") == 1
    assert found("rtolap_receiver_consumer_state", state="PAUSED") == 1
    assert found("rtolap_receiver_consumer_state") == 1, "one state at a time"

    present = stats(25)
    assert Scrape(metrics.registry.render()[0].decode())("rtolap_receiver_events_total", partition="0") == 25
