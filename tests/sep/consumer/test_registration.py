"""Ports in ZooKeeper, under names that region servers can read, and the small master that HBase 3 asks."""

from __future__ import annotations

import pytest
from rtolap.base.errors import Corrupted, DefinitionError, NotLeader
from rtolap.sep.consumer.registration import Registration, small_master
from rtolap.sep.hbase.znodes import HBaseZnodes, ServerName

from tests.support.sep.consumer_harness import running_consumer
from tests.support.sep.replication_client import RegionServer, request
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore
from tests.support.waiting import until

ROOT = "/rtolap/sep/orders"
SINKS = [ServerName("consumer.example", 7000, 1_700_000_000_000), ServerName("10.0.0.7", 7001, 5)]


def test_ports_are_registered_for_as_long_as_the_session_lives() -> None:
    ensemble = MemoryEnsemble()
    watcher, store = MemoryStore(ensemble), MemoryStore(ensemble)
    registration = Registration(store, ROOT, SINKS)
    registration.register()
    registration.register()
    names = ("10.0.0.7,7001,5", "consumer.example,7000,1700000000000")
    assert watcher.children(f"{ROOT}/rs") == names
    assert HBaseZnodes(watcher, ROOT).master() == SINKS[0]
    store.close()
    assert watcher.children(f"{ROOT}/rs") == ()
    assert watcher.get(f"{ROOT}/master") is None


def test_a_withdrawal_leaves_the_ports_of_others() -> None:
    ensemble = MemoryEnsemble()
    first, second = (
        Registration(MemoryStore(ensemble), ROOT, [ServerName("host", port, 9)]) for port in (1, 2)
    )
    first.register()
    second.register()
    assert HBaseZnodes(MemoryStore(ensemble), ROOT).master().port == 2
    first.withdraw()
    first.withdraw()
    assert MemoryStore(ensemble).children(f"{ROOT}/rs") == ("host,2,9",)
    assert HBaseZnodes(MemoryStore(ensemble), ROOT).master().port == 2
    second.withdraw()
    assert MemoryStore(ensemble).children(f"{ROOT}/rs") == ()
    assert MemoryStore(ensemble).get(f"{ROOT}/master") is None


def test_who_no_longer_leads_does_not_register() -> None:
    ensemble = MemoryEnsemble()
    candidate, store = MemoryStore(ensemble), MemoryStore(ensemble)
    election = candidate.elect(f"{ROOT}/leader", "me", lambda: None)
    until(election.is_leader)
    fence = election.fence()
    assert fence is not None
    Registration(store, ROOT, SINKS).register(fence)
    candidate.close()
    other = Registration(store, ROOT, [ServerName("late", 1, 1)])
    with pytest.raises(NotLeader, match="is gone"):
        other.register(fence)
    assert store.children(f"{ROOT}/rs") == tuple(sorted(map(str, SINKS)))


def test_who_leads_removes_the_ports_that_an_earlier_term_has_left() -> None:
    store = MemoryStore(MemoryEnsemble())
    Registration(store, ROOT, SINKS).register()
    election = store.elect(f"{ROOT}/leader", "me", lambda: None)
    until(election.is_leader)
    registration = Registration(store, ROOT, [SINKS[1], ServerName("consumer.example", 7002, 6)])
    for _ in range(2):
        registration.register(election.fence())
        assert [ServerName.parse(name).port for name in store.children(f"{ROOT}/rs")] == [7001, 7002]


@pytest.mark.parametrize(
    ("host", "port", "start_code"),
    [
        ("", 1, 1),
        ("a,b", 1, 1),
        ("::1", 1, 1),
        ("0.0.0.0", 1, 1),
        ("host name", 1, 1),
        ("host-", 1, 1),
        ("host", 0, 1),
        ("host", 65536, 1),
        ("host", 1, 0),
    ],
)
def test_names_that_stop_region_servers_are_never_registered(host: str, port: int, start_code: int) -> None:
    with pytest.raises(DefinitionError, match="cannot be registered"):
        Registration(MemoryStore(MemoryEnsemble()), ROOT, [ServerName(host, port, start_code)])


# Messages as Master.proto and ClusterStatus.proto of HBase 3 write them, by hand.
_ASKS_FOR_ID_AND_NAMES = bytes.fromhex("0801 080a")
_SINK = b"\x0a\x04sink\x10\xd8\x36\x18\x05"  # ServerName: host sink, port 7000, start code 5


def test_hbase_3_is_told_the_id_of_the_cluster_and_the_ports() -> None:
    answers = small_master("6a0c2a3e", lambda: [ServerName("sink", 7000, 5)])
    cluster_id = b"\x2a\x0a\x0a\x086a0c2a3e"  # 5: ClusterId {1: text}
    names = b"\x5a" + bytes([len(_SINK)]) + _SINK  # 11: ServerName
    assert (
        answers["GetClusterStatus"](bytes.fromhex("0801")) == b"\x0a" + bytes([len(cluster_id)]) + cluster_id
    )
    assert answers["GetClusterStatus"](bytes.fromhex("080a")) == b"\x0a" + bytes([len(names)]) + names
    both = cluster_id + names
    assert answers["GetClusterStatus"](_ASKS_FOR_ID_AND_NAMES) == b"\x0a" + bytes([len(both)]) + both
    assert answers["ListDecommissionedRegionServers"](b"") == b""
    with pytest.raises(Corrupted):
        answers["GetClusterStatus"](b"\xff")


def test_a_port_answers_as_the_small_master() -> None:
    answers = small_master("6a0c2a3e", lambda: SINKS)
    with running_consumer(answers=answers) as consumer, RegionServer(consumer.port) as client:
        client.send(request(0, "GetClusterStatus", _ASKS_FOR_ID_AND_NAMES))
        assert client.answer()[1] == answers["GetClusterStatus"](_ASKS_FOR_ID_AND_NAMES)
        client.send(request(1, "ListDecommissionedRegionServers"))
        assert client.answer()[1] == b""
        client.send(request(2, "GetClusterStatus", b"\xff"))
        assert "expected GetClusterStatusRequest" in client.answer()[0].exception.stack_trace
