"""The load of partitions, as a receiver reports it: the rate by the logs' ends, and shares of bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rtolap.cubes.receiver.loads import EVERY_S, Loads, PartitionLoads, held_bytes
from rtolap.cubes.receiver.reports import cube_report
from rtolap.cubes.receiver.settings import ReceiverSettings
from rtolap.protocols.coordinator.messages import PartitionReport

from tests.support.cubes.builders import START_MS, small_schema
from tests.support.cubes.cluster import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    one = Cluster(
        small_schema(), tmp_path, ReceiverSettings(disk_free_bytes_min=0), partitions=4, start_ms=START_MS
    )
    yield one
    one.close()


def produce(cluster: Cluster, partition: int, count: int) -> None:
    for _ in range(count):
        cluster.produce(partition, b'{"ts": %d, "kind": "a", "place": 1, "amount": 1}' % START_MS, None)


def test_a_rate_is_known_after_ten_seconds_and_is_that_of_the_last_minute() -> None:
    loads = PartitionLoads()
    for second in range(int(EVERY_S)):
        loads.look(float(second), {0: 5 * second}, ())
        assert loads.records_per_s(0) is None
    loads.look(EVERY_S, {0: 50}, ())
    assert loads.records_per_s(0) == 5.0
    end = 50
    for second in range(11, 200):
        end += 100
        loads.look(float(second), {0: end, 1: 7}, ())
    assert loads.records_per_s(0) == 100.0, "what was a minute ago no longer counts"
    assert loads.records_per_s(1) == 0.0
    assert loads.records_per_s(2) is None
    loads.look(200.0, {}, ())
    assert loads.records_per_s(0) is None, "Kafka names no end"


def test_the_rate_of_a_log_that_has_lost_its_end_begins_again() -> None:
    loads = PartitionLoads()
    loads.look(0.0, {0: 100}, ())
    loads.look(20.0, {0: 120}, ())
    assert loads.records_per_s(0) == 1.0
    loads.look(21.0, {0: 3}, ())
    assert loads.records_per_s(0) is None
    loads.look(31.0, {0: 23}, ())
    assert loads.records_per_s(0) == 2.0


def test_bytes_are_shared_by_offsets_and_none_is_lost(cluster: Cluster) -> None:
    receiver = cluster.receivers[0]
    receiver.look()
    for partition, count in ((0, 30), (2, 10)):
        produce(cluster, partition, count)
    receiver.consume_all()
    tables = tuple(receiver.core.state.tables())
    whole = sum(table.nbytes + table.cuboids.nbytes for table in tables)
    shares = held_bytes(tables)
    assert set(shares) == {0, 2}
    assert sum(shares.values()) == pytest.approx(whole, abs=len(shares))
    assert shares[0] > shares[2] > 0
    assert held_bytes(()) == {}


def test_heartbeats_carry_the_loads_of_each_consumer(cluster: Cluster) -> None:
    receiver = cluster.receivers[0]
    receiver.look()
    produce(cluster, 0, 5)
    receiver.consume_all()
    receiver.core.look_up_log_ends()
    loads = Loads()
    loads.look(receiver.core, 0.0)
    produce(cluster, 0, 20)
    receiver.consume_all()
    receiver.core.look_up_log_ends()
    report = cube_report(receiver.core, cluster.clock, loads.look(receiver.core, 10.0))
    assert report.partitions[0].records_per_s == 2.0
    assert report.partitions[2].records_per_s == 0.0
    assert report.partitions[0].held_bytes == held_bytes(receiver.core.state.tables())[0]
    assert report.partitions[2].held_bytes == 0, "nothing is held of it"
    without = cube_report(receiver.core, cluster.clock).partitions[0]
    assert (without.records_per_s, without.held_bytes) == (None, None)
    assert PartitionReport.model_validate({"position": 1}).held_bytes is None, (
        "an older receiver says nothing"
    )
