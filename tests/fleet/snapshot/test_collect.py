import numpy as np
import pytest
from rtolap.base.errors import Forbidden
from rtolap.fleet.snapshot.collect import collect_snapshot
from rtolap.fleet.snapshot.file import digest_of
from rtolap.fleet.snapshot.model import UNKNOWN, BrokerState, FleetSnapshot, ReplicaState
from rtolap.kafka.administration.values import Partition, Replica

from tests.support.twins.administered_cluster import MemoryCluster
from tests.support.twins.administration import MemoryAdministration
from tests.support.twins.clock import ManualClock


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster("fleet")
    for broker, rack in ((3, "b"), (1, "a"), (2, None)):
        made.add_broker(broker, rack)
    made.add_partition(Partition("orders", 0), [1, 2], 500, "/d0")
    made.add_partition(Partition("orders", 1), [3], 700, "/d1")
    made.add_partition(Partition("audit", 0), [2, 3], 900, "/d0")
    return made


def collected(cluster: MemoryCluster) -> FleetSnapshot:
    return collect_snapshot(MemoryAdministration(cluster), ManualClock(1234))


def facts(snapshot: FleetSnapshot) -> set[str]:
    return {missing.fact for missing in snapshot.missing} - {"rates of partitions"}


def test_a_snapshot_says_where_everything_is(cluster: MemoryCluster) -> None:
    snapshot = collected(cluster)
    assert (snapshot.cluster_id, snapshot.taken_at_ms, snapshot.controller) == ("fleet", 1234, 1)
    assert list(snapshot.brokers.ids) == [1, 2, 3]
    assert snapshot.brokers.racks == ("a", None, "b")
    assert set(snapshot.brokers.states) == {BrokerState.ALIVE}
    assert list(zip(snapshot.log_dirs.brokers, snapshot.log_dirs.paths, strict=True)) == [
        (row, path) for row in range(3) for path in ("/d0", "/d1")
    ]
    assert snapshot.topics.names == ("audit", "orders")
    assert list(snapshot.topics.min_in_sync) == [1, 1]
    assert list(snapshot.partitions.leaders) == [1, 0, 2]
    replicas = snapshot.replicas
    assert list(replicas.brokers) == [1, 2, 0, 1, 2]
    assert list(replicas.size_bytes) == [900, 900, 500, 500, 700]
    assert [snapshot.log_dirs.paths[row] for row in replicas.log_dirs] == ["/d0"] * 4 + ["/d1"]
    assert replicas.in_sync.all()
    assert facts(snapshot) == set()


def test_the_same_cluster_gives_the_same_snapshot(cluster: MemoryCluster) -> None:
    assert digest_of(collected(cluster)) == digest_of(collected(cluster))


def test_running_reassignments_and_moves_between_disks_show(cluster: MemoryCluster) -> None:
    administration = MemoryAdministration(cluster)
    administration.reassign({Partition("orders", 0): [3, 2]})
    administration.move_log_dirs({Replica(Partition("orders", 1), 3): "/d0"})
    snapshot = collected(cluster)
    first = int(snapshot.partitions.first_replicas[1])
    states = snapshot.replicas.states[first : first + 3]
    assert list(states) == [ReplicaState.ADDING, ReplicaState.STAYING, ReplicaState.REMOVING]
    assert snapshot.log_dirs.paths[snapshot.replicas.future_log_dirs[-1]] == "/d0"
    assert snapshot.replicas.future_bytes[-1] == 0


def test_a_silent_broker_is_missing_and_forbids_what_needs_sizes(cluster: MemoryCluster) -> None:
    cluster.brokers[2].silent = True
    snapshot = collected(cluster)
    assert facts(snapshot) == {"log directories of broker 2"}
    assert "disks" in next(known for known in snapshot.missing if "broker 2" in known.fact).forbids
    at_2 = snapshot.replicas.brokers == 1
    assert (snapshot.replicas.size_bytes[at_2] == UNKNOWN).all()
    assert (snapshot.replicas.size_bytes[~at_2] >= 0).all()


def test_a_broker_that_is_gone_stays_in_the_snapshot_as_what_it_is(cluster: MemoryCluster) -> None:
    cluster.stop_broker(2)
    del cluster.brokers[1]
    snapshot = collected(cluster)
    assert list(snapshot.brokers.states) == [BrokerState.ABSENT, BrokerState.FENCED, BrokerState.ALIVE]
    assert facts(snapshot) == {"sizes of 1 replicas at broker 1", "sizes of 2 replicas at broker 2"}


def test_missing_rights_are_named(cluster: MemoryCluster) -> None:
    cluster.forbidden |= {"running_reassignments", "client_quotas", "configs"}
    snapshot = collected(cluster)
    assert facts(snapshot) == {"running reassignments", "client quotas", "min.insync.replicas of topics"}
    assert all("may not" in known.reason for known in snapshot.missing if "rates" not in known.fact)
    cluster.forbidden.add("describe_topics")
    with pytest.raises(Forbidden):
        collected(cluster)


def test_an_empty_cluster_is_a_snapshot_too() -> None:
    cluster = MemoryCluster()
    cluster.add_broker(1)
    snapshot = collected(cluster)
    assert len(snapshot.replicas) == 0
    assert np.array_equal(snapshot.partitions.first_replicas, [0])
