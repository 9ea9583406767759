from collections.abc import Sequence
from itertools import count

import pytest
from rtolap.base.errors import Forbidden, Refused
from rtolap.kafka.administration.interface import ActiveProducer, ListedGroup
from rtolap.kafka.administration.values import ALL_BROKERS, LOG_DIRS_RATE, OffsetSpec, Partition, Replica

from tests.support.fleet.administration_contract import BROKERS, AdministrationContract, World
from tests.support.twins.administered_cluster import NETWORK_BYTES_PER_S, MemoryCluster, MemoryGroup
from tests.support.twins.administration import MemoryAdministration

MOVED = Partition("moved", 0)


def cluster_of(*brokers: int) -> MemoryCluster:
    cluster = MemoryCluster()
    for broker in brokers:
        cluster.add_broker(broker, f"rack{broker}")
    return cluster


class TestMemoryAdministration(AdministrationContract):
    @pytest.fixture
    def world(self) -> World:
        cluster = cluster_of(*BROKERS)
        cluster.add_partition(Partition("other", 0), BROKERS, 1000, "/d0")
        cluster.add_partition(Partition("other", 1), BROKERS, 1000, "/d1")
        numbers = count()

        def create(replicas: Sequence[Sequence[int]]) -> str:
            topic = f"topic{next(numbers)}"
            for number, brokers in enumerate(replicas):
                cluster.add_partition(Partition(topic, number), brokers)
            return topic

        def fill(partition: Partition, size_bytes: int) -> None:
            known = cluster.partitions[partition]
            known.size_bytes += size_bytes
            known.offsets[OffsetSpec.LATEST] += size_bytes // 10_240 + 1  # as many as a real world writes
            for broker in known.replicas:
                cluster.replicas[Replica(partition, broker)].size_bytes += size_bytes

        def commit(group: str, partition: Partition, offset: int) -> None:
            known = MemoryGroup(ListedGroup(group, "classic", "Empty", 1))
            cluster.groups.setdefault(group, known).committed[partition] = offset

        def write(partition: Partition) -> None:
            cluster.producers[partition] = (ActiveProducer(1, 1_700_000_000_000),)

        administration = MemoryAdministration(cluster)
        return World(administration, create, fill, lambda: cluster.advance(1.0), commit, write)


def test_copies_share_the_rate_and_replicas_in_sync_are_not_bound() -> None:
    cluster = cluster_of(1, 2)
    cluster.add_partition(MOVED, [1], 10 * NETWORK_BYTES_PER_S)
    cluster.add_partition(Partition("moved", 1), [1], 10 * NETWORK_BYTES_PER_S)
    administration = MemoryAdministration(cluster)
    administration.reassign({MOVED: [2], Partition("moved", 1): [2]})
    cluster.advance(1.0)
    assert cluster.replicas[Replica(MOVED, 2)].size_bytes == NETWORK_BYTES_PER_S // 2


def test_a_stuck_partition_and_a_dead_target_copy_nothing() -> None:
    cluster = cluster_of(1, 2)
    cluster.add_partition(MOVED, [1], 1000)
    MemoryAdministration(cluster).reassign({MOVED: [2]})
    cluster.partitions[MOVED].stuck = True
    cluster.advance(10.0)
    assert cluster.replicas[Replica(MOVED, 2)].size_bytes == 0
    cluster.partitions[MOVED].stuck = False
    cluster.stop_broker(2)
    cluster.advance(10.0)
    assert cluster.partitions[MOVED].replicas == [2, 1]
    cluster.start_broker(2)
    cluster.advance(10.0)
    assert cluster.partitions[MOVED].replicas == [2]


def test_a_full_disk_takes_its_directory_offline() -> None:
    cluster = cluster_of(1)
    cluster.add_broker(2, "rack2", {"/d0": 500})
    cluster.add_partition(MOVED, [1], 1000)
    administration = MemoryAdministration(cluster)
    administration.reassign({MOVED: [2]})
    cluster.advance(10.0)
    assert cluster.partitions[MOVED].replicas == [2, 1]
    assert administration.describe_log_dirs([2])[2].log_dirs[0].offline


def test_moves_between_disks_keep_to_their_rate() -> None:
    cluster = cluster_of(1)
    cluster.add_partition(MOVED, [1], 1000, "/d0")
    administration = MemoryAdministration(cluster)
    administration.alter_configs({ALL_BROKERS: {LOG_DIRS_RATE: "100"}})
    administration.move_log_dirs({Replica(MOVED, 1): "/d1"})
    cluster.advance(4.0)
    assert cluster.replicas[Replica(MOVED, 1)].future_bytes == 400
    administration.move_log_dirs({Replica(MOVED, 1): "/d0"})
    assert cluster.replicas[Replica(MOVED, 1)].future_path is None


def test_a_cancel_that_would_lose_every_replica_in_sync_is_refused() -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.add_partition(MOVED, [1], 1000)
    administration = MemoryAdministration(cluster)
    administration.reassign({MOVED: [2, 3]})
    cluster.partitions[MOVED].in_sync = {2}
    assert isinstance(administration.reassign({MOVED: None})[MOVED], Refused)


def test_a_call_without_its_right_is_forbidden() -> None:
    cluster = cluster_of(1)
    cluster.forbidden.add("reassign")
    with pytest.raises(Forbidden):
        MemoryAdministration(cluster).reassign({MOVED: [1]})
