"""Heartbeats of hosts: they move progress in their order among the events, and are no events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from rtolap.cubes.receiver.local.align import VersionedRange
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.kafka.interfaces import OutRecord
from rtolap.model.application import CubeWatermark
from rtolap.model.cube import Schema
from rtolap.model.table import Column

from tests.support.cubes.builders import START_MS, WINDOW_MS, small_schema
from tests.support.cubes.cluster import Cluster
from tests.support.cubes.stepped_receiver import Receiver

MARK = CubeWatermark("logs", "web", "cubes")


def schema() -> Schema:
    plain = small_schema(watermark=MARK)
    columns = (*plain.table.columns, Column("host", "string"), Column("alive", "boolean"))
    table = msgspec.structs.replace(
        plain.table, columns=columns, host_column="host", heartbeat_column="alive"
    )
    return Schema(table, plain.cube)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    settings = ReceiverSettings(disk_free_bytes_min=0)
    one = Cluster(schema(), tmp_path, settings, partitions=1, start_ms=START_MS + WINDOW_MS)
    yield one
    one.close()


def send(cluster: Cluster, at_ms: int, host: str | None, alive: bool | None, created_ms: int) -> None:
    body = {"ts": START_MS + at_ms, "kind": "a", "host": host, "alive": alive}
    record = OutRecord(json.dumps(body).encode(), partition=0, timestamp_ms=START_MS + created_ms)
    cluster.producer.produce(cluster.schema.table.topic, [record])


def read(cluster: Cluster) -> Receiver:
    receiver = cluster.receivers[0]
    receiver.look()
    receiver.consume_all()
    return receiver


def event_count(receiver: Receiver) -> int:
    return sum(table.events for table in receiver.core.state.tables())


def test_a_heartbeat_moves_its_host_and_is_no_event(cluster: Cluster) -> None:
    send(cluster, 10, "a", None, created_ms=50)
    send(cluster, 20, "b", False, created_ms=50)
    send(cluster, 70, "a", True, created_ms=80)
    receiver = read(cluster)
    assert receiver.core.progress.hosts is not None
    assert receiver.core.progress.hosts.latest_ms() == {0: {"a": START_MS + 70, "b": START_MS + 20}}
    assert event_count(receiver) == 2
    assert receiver.core.state.positions == {0: 3}
    said = receiver.core.progress.hosts.drain([0], whole=True)[0]
    assert dict(zip(said.hosts, said.events.tolist(), strict=True)) == {"a": 1, "b": 1}


def test_a_heartbeat_moves_no_further_than_its_records_timestamp(cluster: Cluster) -> None:
    send(cluster, 500, "a", True, created_ms=80)
    receiver = read(cluster)
    assert receiver.core.progress.hosts is not None
    assert receiver.core.progress.hosts.latest_ms() == {0: {"a": START_MS + 80}}
    assert event_count(receiver) == 0


def test_refused_records_move_nobody(cluster: Cluster) -> None:
    bad = OutRecord(b'{"ts": "soon", "host": "a", "alive": true}', partition=0, timestamp_ms=START_MS)
    cluster.producer.produce(cluster.schema.table.topic, [bad])
    receiver = read(cluster)
    assert receiver.core.progress.hosts is not None
    assert receiver.core.progress.hosts.latest_ms() == {}
    assert receiver.core.progress.counters[0].rejected


def test_what_is_read_again_holds_no_heartbeats_either(cluster: Cluster) -> None:
    send(cluster, 10, "a", None, created_ms=50)
    send(cluster, 30, "a", True, created_ms=50)
    receiver = read(cluster)
    (table,) = receiver.reader.read(START_MS, [VersionedRange(0, 0, 2, 1)])
    assert table.events == 1


def test_progress_survives_a_crash_with_the_positions_that_it_belongs_to(cluster: Cluster) -> None:
    send(cluster, 10, "a", None, created_ms=50)
    read(cluster).checkpoint()
    send(cluster, 20, "b", None, created_ms=50)
    receiver = read(cluster)
    receiver.crash()
    receiver.look()
    assert receiver.core.progress.hosts is not None
    receiver.core.step(receiver.view)
    found = receiver.core.progress.hosts.latest_ms()
    assert found[0]["a"] == START_MS + 10
    assert read(cluster).core.state.positions == {0: 2}
    assert receiver.core.progress.hosts.latest_ms() == {0: {"a": START_MS + 10, "b": START_MS + 20}}
