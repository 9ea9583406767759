"""Events without a usable host are events like others, but say of nobody how far he is: they are counted."""

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


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    plain = small_schema(watermark=CubeWatermark("logs", "web", "cubes"))
    columns = (*plain.table.columns, Column("host", "string"))
    table = msgspec.structs.replace(plain.table, columns=columns, host_column="host")
    settings = ReceiverSettings(disk_free_bytes_min=0)
    one = Cluster(Schema(table, plain.cube), tmp_path, settings, partitions=1, start_ms=START_MS + WINDOW_MS)
    yield one
    one.close()


def send(cluster: Cluster, *hosts: str | None) -> None:
    bodies = [{"ts": START_MS, "kind": "a"} | ({} if host is None else {"host": host}) for host in hosts]
    records = [OutRecord(json.dumps(body).encode(), partition=0, timestamp_ms=START_MS) for body in bodies]
    cluster.producer.produce(cluster.schema.table.topic, records)


def read(cluster: Cluster) -> Receiver:
    receiver = cluster.receivers[0]
    receiver.look()
    receiver.consume_all()
    return receiver


def shown(cluster: Cluster, receiver: Receiver) -> dict[int, int]:
    stats = cube_stats(receiver.core, cluster.clock, is_leader=False)
    return {one.partition: one.hostless for one in stats.partitions}


def test_they_are_counted_and_still_in_the_cube(cluster: Cluster) -> None:
    send(cluster, "a", None, "two words", None, "", "b")
    receiver = read(cluster)
    assert shown(cluster, receiver) == {0: 4}
    assert sum(table.events for table in receiver.core.state.tables()) == 6
    hosts = receiver.core.progress.hosts
    assert hosts is not None
    assert hosts.latest_ms() == {0: {"a": START_MS, "b": START_MS}}


def test_the_count_goes_on_after_a_crash_and_counts_nothing_twice(cluster: Cluster) -> None:
    send(cluster, "a", None)
    receiver = read(cluster)
    receiver.checkpoint()
    send(cluster, None, None)
    assert shown(cluster, read(cluster)) == {0: 3}
    receiver.crash()
    assert shown(cluster, read(cluster)) == {0: 3}


def test_people_and_prometheus_see_them(cluster: Cluster) -> None:
    send(cluster, None, "a")
    receiver = read(cluster)
    assert _standing(cube_report(receiver.core, cluster.clock)).endswith(", 1 events without a usable host")
    stats = ReceiverStats("r", "s", "a:1", (cube_stats(receiver.core, cluster.clock, is_leader=False),))
    text = ReceiverMetrics(lambda: stats).registry.render()[0].decode()
    cube = cluster.schema.cube.name
    assert f'rtolap_receiver_hostless_events_total{{cube="{cube}",partition="0"}} 1.0' in text
