"""Records that the table's condition leaves out: in no answer, counted once, and their times move clocks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from rtolap.cli.receivers import _standing
from rtolap.cubes.receiver.metrics import ReceiverMetrics
from rtolap.cubes.receiver.reports import cube_report, cube_stats
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.kafka.interfaces import OutRecord
from rtolap.model.application import CubeWatermark
from rtolap.model.cube import Schema
from rtolap.model.table import Column
from rtolap.protocols.receiver.messages import ReceiverStats

from tests.support.cubes.builders import START_MS, WINDOW_MS, small_schema
from tests.support.cubes.cluster import Cluster
from tests.support.cubes.stepped_receiver import Receiver


def make_cluster(folder: Path, *, by_hosts: bool = False) -> Cluster:
    small = small_schema(**({"watermark": CubeWatermark("logs", "web", "cubes")} if by_hosts else {}))
    table = msgspec.structs.replace(
        small.table,
        where="kind = 'a'",
        columns=(*small.table.columns, Column("host", "string")),
        host_column="host" if by_hosts else None,
    )
    settings = ReceiverSettings(disk_free_bytes_min=0)
    return Cluster(Schema(table, small.cube), folder, settings, partitions=1, start_ms=START_MS + WINDOW_MS)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    one = make_cluster(tmp_path)
    yield one
    one.close()


def send(cluster: Cluster, *kinds: str, at_ms: int = 0) -> None:
    created_ms = START_MS + at_ms
    bodies = [{"ts": created_ms, "kind": kind, "host": "h"} for kind in kinds]
    records = [OutRecord(json.dumps(body).encode(), partition=0, timestamp_ms=created_ms) for body in bodies]
    cluster.producer.produce(cluster.schema.table.topic, records)


def read(cluster: Cluster) -> Receiver:
    receiver = cluster.receivers[0]
    receiver.look()
    receiver.consume_all()
    return receiver


def counted(cluster: Cluster, receiver: Receiver) -> tuple[int, int, int]:
    """Return how many events were taken in, left out and refused."""
    (one,) = cube_stats(receiver.core, cluster.clock, is_leader=False).partitions
    return one.events, one.filtered, sum(one.rejected.values())


def test_they_are_in_no_answer_and_no_rejects(cluster: Cluster) -> None:
    send(cluster, "a", "b", "a", "c", "b")
    receiver = read(cluster)
    assert counted(cluster, receiver) == (2, 3, 0)
    assert sum(table.events for table in receiver.core.state.tables()) == 2
    assert receiver.core.state.positions == {0: 5}


def test_a_crash_counts_nothing_twice(cluster: Cluster) -> None:
    send(cluster, "a", "b")
    receiver = read(cluster)
    receiver.checkpoint()
    send(cluster, "b", "a", "b")
    assert counted(cluster, read(cluster)) == (2, 3, 0)
    receiver.crash()
    assert counted(cluster, read(cluster)) == (2, 3, 0)
    assert sum(table.events for table in receiver.core.state.tables()) == 2


def test_a_partition_of_which_nothing_passes_holds_nobody_back(cluster: Cluster) -> None:
    send(cluster, "b", at_ms=7)
    send(cluster, "b", at_ms=5)
    receiver = read(cluster)
    (one,) = cube_stats(receiver.core, cluster.clock, is_leader=False).partitions
    assert one.watermark_ms == START_MS + 7
    assert receiver.core.progress.mark_ms == START_MS + 7


def test_they_move_their_host_and_are_not_its_events(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path, by_hosts=True)
    try:
        send(cluster, "a", at_ms=3)
        send(cluster, "b", at_ms=9)
        hosts = read(cluster).core.progress.hosts
        assert hosts is not None
        assert hosts.latest_ms() == {0: {"h": START_MS + 9}}
    finally:
        cluster.close()


def test_people_and_prometheus_see_them(cluster: Cluster) -> None:
    send(cluster, "b", "a")
    receiver = read(cluster)
    shown = _standing(cube_report(receiver.core, cluster.clock))
    assert shown.endswith(", 1 records left out by the table's condition")
    stats = ReceiverStats("r", "s", "a:1", (cube_stats(receiver.core, cluster.clock, is_leader=False),))
    text = ReceiverMetrics(lambda: stats).registry.render()[0].decode()
    cube = cluster.schema.cube.name
    assert f'rtolap_receiver_filtered_records_total{{cube="{cube}",partition="0"}} 1.0' in text
