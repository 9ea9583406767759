"""Tests of what closes a segment, and what must not, through real receiver cores."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rtolap.cubes.receiver.settings import ReceiverSettings

from tests.support.cubes.builders import START_MS, WINDOW_MS, small_schema
from tests.support.cubes.cluster import Cluster
from tests.support.cubes.stepped_receiver import Receiver

HOUR_MS = 3_600_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    settings = ReceiverSettings(disk_free_bytes_min=0, idle_after_s=3.0)
    one = Cluster(small_schema(), tmp_path, settings, start_ms=START_MS)
    yield one
    one.close()


def send(cluster: Cluster, partition: int, *, ahead_ms: int = 0) -> None:
    at_ms = cluster.clock.now_ms() + ahead_ms
    body = {"ts": at_ms, "kind": "a", "place": 1, "amount": 1, "price": None}
    cluster.produce(partition, json.dumps(body).encode(), None)


def closings(cluster: Cluster) -> dict[int, str]:
    """Segment start → why; of the leaders, after everybody has read everything."""
    found: dict[int, str] = {}
    leaders: list[Receiver] = [receiver for receiver in cluster.receivers if receiver.leading]
    for _ in range(2):  # the second look knows the watermark that the first reading made
        for receiver in leaders:
            receiver.look()
            receiver.consume_all()
    for receiver in leaders:
        found.update({one.start_ms: one.why for one in receiver.core.closings()})
    return found


def test_an_event_hours_ahead_closes_nothing_before_its_time(cluster: Cluster) -> None:
    for partition in range(4):
        send(cluster, partition)
        send(cluster, partition, ahead_ms=5 * HOUR_MS)
    cluster.clock.advance_ms(1_000)
    for partition in range(4):
        send(cluster, partition)
    assert closings(cluster) == {}, "neither by the watermark nor by the sliding window"
    assert cluster.low_watermark_ms() == START_MS + 1_000
    cluster.clock.advance_ms(WINDOW_MS + 5_000)
    for partition in range(4):
        send(cluster, partition)
    assert list(closings(cluster)) == [START_MS], "its time is over; what lies ahead stays open"


def test_a_partition_of_the_future_alone_does_not_close_what_the_others_fill(cluster: Cluster) -> None:
    for step in range(5):
        cluster.clock.advance_ms(1_000)
        send(cluster, 0, ahead_ms=2 * HOUR_MS + step)
        for partition in (1, 2, 3):
            send(cluster, partition)
        assert closings(cluster) == {}


def test_a_partition_that_is_idle_from_the_beginning_holds_up_nobody(cluster: Cluster) -> None:
    """Partitions 0 and 2 are of one replica set; nothing ever arrives in 2."""
    for partition in (0, 1, 3):
        send(cluster, partition)
    assert closings(cluster) == {}
    cluster.clock.advance_ms(WINDOW_MS + 6_000)
    for partition in (0, 1, 3):
        send(cluster, partition)
    leader = cluster.receivers[0]
    leader.look()
    as_published = cluster.clock.now_ms()  # by the coordinator, which leaves the idle one out
    leader.view = replace(leader.view, low_watermark_ms=as_published)
    leader.consume_all()
    leader.consume()
    assert [one.start_ms for one in leader.core.closings()] == [START_MS]
