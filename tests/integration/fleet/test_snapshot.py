import itertools
from pathlib import Path

import pytest
from rtolap.base.clock import SystemClock
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.fleet.snapshot.file import digest_of, load, save
from rtolap.fleet.snapshot.model import UNKNOWN, BrokerState, FleetSnapshot, ReplicaState
from rtolap.kafka.administration.client import KafkaAdministration
from rtolap.kafka.administration.values import Partition

from tests.support.fleet.administration_contract import World
from tests.support.fleet.brokers import Brokers

pytestmark = pytest.mark.integration


def collected(world: World) -> FleetSnapshot:
    return collect_snapshot(world.administration, SystemClock())


def rows_of(snapshot: FleetSnapshot, partition: Partition) -> range:
    topic = snapshot.topics.names.index(partition.topic)
    at = next(
        row
        for row in range(len(snapshot.partitions))
        if snapshot.partitions.topics[row] == topic and snapshot.partitions.numbers[row] == partition.number
    )
    first = snapshot.partitions.first_replicas
    return range(int(first[at]), int(first[at + 1]))


def size_on_disk(brokers: Brokers, snapshot: FleetSnapshot, row: int, partition: Partition) -> int:
    path = Path(snapshot.log_dirs.paths[snapshot.replicas.log_dirs[row]])
    broker = int(snapshot.brokers.ids[snapshot.replicas.brokers[row]])
    assert path in brokers.log_dirs(broker)
    segments = (path / f"{partition.topic}-{partition.number}").glob("*.log")
    return sum(segment.stat().st_size for segment in segments)


def test_sizes_racks_and_leaders_are_those_of_the_brokers(
    brokers: Brokers, fleet_world: World, tmp_path: Path
) -> None:
    topic = fleet_world.create([[2, 1], [3, 2]])
    for number in (0, 1):
        fleet_world.fill(Partition(topic, number), 300_000 * (number + 1))
    snapshot = collected(fleet_world)
    assert snapshot.brokers.racks == ("rack1", "rack2", "rack3")
    assert list(snapshot.brokers.states) == [BrokerState.ALIVE] * 3
    assert snapshot.controller == 1
    for number, replicas in enumerate(((2, 1), (3, 2))):
        partition = Partition(topic, number)
        rows = rows_of(snapshot, partition)
        assert tuple(snapshot.brokers.ids[snapshot.replicas.brokers[rows.start : rows.stop]]) == replicas
        for row in rows:
            assert snapshot.replicas.size_bytes[row] == size_on_disk(brokers, snapshot, row, partition)
            assert snapshot.replicas.size_bytes[row] > 300_000
    assert {missing.fact for missing in snapshot.missing} == {"rates of partitions"}
    save(snapshot, tmp_path / "fleet.snapshot")
    assert digest_of(load(tmp_path / "fleet.snapshot")) == digest_of(snapshot)


def test_a_running_reassignment_shows_with_what_is_there_already(fleet_world: World) -> None:
    partition = Partition(fleet_world.create([[1]]), 0)
    fleet_world.fill(partition, 400_000)
    fleet_world.slow(partition, 1_000)
    ways = itertools.cycle([(1, 2), (2, 1)])
    target = 2

    def is_seen_under_way() -> bool:
        """Where the throttle comes to a broker after the request, the copy is over at once, even between the
        two requests of which a snapshot is made: it goes back."""
        nonlocal target
        source, target = next(ways)
        fleet_world.administration.reassign({partition: [target]})
        snapshot = collected(fleet_world)
        states = {
            int(snapshot.brokers.ids[snapshot.replicas.brokers[row]]): snapshot.replicas.states[row]
            for row in rows_of(snapshot, partition)
        }
        return states == {source: ReplicaState.REMOVING, target: ReplicaState.ADDING}

    try:
        fleet_world.until(is_seen_under_way, "a reassignment that is under way")
    finally:
        fleet_world.free(partition)
    fleet_world.until(lambda: fleet_world.replicas(partition) == (target,), "the reassignment")


def test_a_stopped_broker_is_fenced_and_its_sizes_are_missing(own_brokers: Brokers) -> None:
    own_brokers.servers[3].kill()
    own_brokers.wait_alive((1, 2))
    administration = KafkaAdministration(own_brokers.cluster)
    try:
        snapshot = collect_snapshot(administration, SystemClock())
    finally:
        administration.close()
    assert list(snapshot.brokers.states) == [BrokerState.ALIVE, BrokerState.ALIVE, BrokerState.FENCED]
    assert UNKNOWN not in snapshot.replicas.size_bytes[snapshot.replicas.brokers != 2]
