"""The master's client: it finds the master again, and repeats a change until it is seen to be done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from google.protobuf.message import Message
from rtolap.base.errors import Refused, Unavailable
from rtolap.metadata.store import Create, Put
from rtolap.sep.hbase import admin_pb2, rpc_pb2
from rtolap.sep.hbase.master import MasterClient, scope_statement, unreplicated
from rtolap.sep.hbase.peers import Peer
from rtolap.sep.hbase.znodes import HBaseZnodes

from tests.support.hbase.scripted_server import Answer, exception, response, scripted_server
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

PEER = Peer(id="orders", cluster_key="h:2181:/rtolap/sep/orders", tables={"t": ("cf",)}, serial=True)
STATES = admin_pb2.GetProcedureResultResponse


def listed(peer: Peer) -> admin_pb2.ListReplicationPeersResponse:
    state = admin_pb2.ReplicationState(state=admin_pb2.ReplicationState.ENABLED)
    described = admin_pb2.ReplicationPeerDescription(id=peer.id, state=state, config=peer.to_message())
    return admin_pb2.ListReplicationPeersResponse(peer_desc=[described])


def master_data(port: int) -> bytes:
    server = rpc_pb2.ServerName(host_name="127.0.0.1", port=port, start_code=1)
    return b"PBUF" + admin_pb2.Master(master=server).SerializeToString()


@contextmanager
def client(answer: Answer, *, timeout_s: float = 30.0) -> Iterator[tuple[MasterClient, list[str]]]:
    """The client of a scripted master, and the methods that were called of it."""
    store = MemoryStore(MemoryEnsemble())
    methods: list[str] = []

    def noting(header: rpc_pb2.RequestHeader, request: bytes) -> bytes | None:
        methods.append(header.method_name)
        return answer(header, request)

    with scripted_server(noting) as server:
        store.commit([Create("/hbase/master", master_data(server.port))])
        with MasterClient(HBaseZnodes(store, "/hbase"), timeout_s=timeout_s) as opened:
            yield opened, methods
    store.close()


def by_method(**messages: Message | None) -> Answer:
    """None: the connection is closed in place of an answer."""

    def answer(header: rpc_pb2.RequestHeader, _: bytes) -> bytes | None:
        message = messages[header.method_name]
        return None if message is None else response(header, message)

    return answer


def test_a_change_waits_for_its_procedure() -> None:
    results = iter([STATES(state=STATES.RUNNING), STATES(state=STATES.FINISHED)])

    def answer(header: rpc_pb2.RequestHeader, _: bytes) -> bytes:
        asked = header.method_name == "getProcedureResult"
        return response(header, next(results) if asked else admin_pb2.ProcedureResponse(proc_id=7))

    with client(answer) as (master, methods):
        master.add_peer(PEER)
        assert methods == ["AddReplicationPeer", "getProcedureResult", "getProcedureResult"]


def test_a_procedure_that_failed_is_an_error() -> None:
    failed = STATES(state=STATES.FINISHED)
    failed.exception.generic_exception.class_name = "org.apache.hadoop.hbase.DoNotRetryIOException"
    failed.exception.generic_exception.message = "no such endpoint"
    answers = by_method(AddReplicationPeer=admin_pb2.ProcedureResponse(proc_id=7), getProcedureResult=failed)
    with client(answers) as (master, _), pytest.raises(Refused, match="no such endpoint"):
        master.add_peer(PEER)


def test_a_change_whose_answer_was_lost_is_seen_to_be_done() -> None:
    with client(by_method(AddReplicationPeer=None, ListReplicationPeers=listed(PEER))) as (master, methods):
        master.add_peer(PEER)
        assert methods == ["AddReplicationPeer", "ListReplicationPeers"]


def test_a_refusal_by_what_was_there_before_is_one() -> None:
    def answer(header: rpc_pb2.RequestHeader, _: bytes) -> bytes:
        return exception(header, "org.apache.hadoop.hbase.DoNotRetryIOException", "already exists")

    with client(answer) as (master, methods):
        with pytest.raises(Refused, match="already exists"):
            master.add_peer(PEER)
        assert methods == ["AddReplicationPeer"]


def test_peers_come_back_as_they_were_sent() -> None:
    with client(by_method(ListReplicationPeers=listed(PEER))) as (master, _):
        assert master.peers() == {"orders": PEER}
        master.enable_peer("orders")  # it is: HBase is not asked, it would refuse


def test_another_master_is_found() -> None:
    store = MemoryStore(MemoryEnsemble())
    standby = "org.apache.hadoop.hbase.ipc.ServerNotRunningYetException"
    with (
        scripted_server(lambda header, _: exception(header, standby)) as first,
        scripted_server(by_method(ListReplicationPeers=listed(PEER))) as second,
    ):
        store.commit([Create("/hbase/master", master_data(first.port))])
        with MasterClient(HBaseZnodes(store, "/hbase"), timeout_s=1.2) as master:
            with pytest.raises(Unavailable, match="ServerNotRunningYet"):
                master.peers()
            node = store.get("/hbase/master")
            assert node is not None
            store.commit([Put("/hbase/master", master_data(second.port), node.version)])
            assert set(master.peers()) == {"orders"}
    store.close()


def test_no_master_is_told() -> None:
    store = MemoryStore(MemoryEnsemble())
    master = MasterClient(HBaseZnodes(store, "/hbase"), timeout_s=0.1)
    with pytest.raises(Unavailable, match="/hbase/master is not there"):
        master.peers()
    store.close()


def test_families_without_replication_are_those_whose_scope_is_0() -> None:
    def family(name: str, scope: bytes | None) -> admin_pb2.ColumnFamilySchema:
        pair = admin_pb2.BytesBytesPair(first=b"REPLICATION_SCOPE", second=scope)
        return admin_pb2.ColumnFamilySchema(name=name.encode(), attributes=[] if scope is None else [pair])

    table = admin_pb2.TableSchema(
        table_name=admin_pb2.TableName(namespace=b"shop", qualifier=b"t"),
        column_families=[family("a", b"0"), family("b", b"1"), family("c", None), family("d", b"0")],
    )
    descriptors = admin_pb2.GetTableDescriptorsResponse(table_schema=[table])
    with client(by_method(GetTableDescriptors=descriptors)) as (master, _):
        families = master.replicated_families()
    assert families == {"shop:t": {"a": False, "b": True, "c": False, "d": False}}
    assert unreplicated(families, {"shop:t": ()}) == {"shop:t": ("a", "c", "d")}
    assert unreplicated(families, {"shop:t": ("b",), "other": ()}) == {}
    assert scope_statement("shop:t", ("a", "c")) == (
        "alter 'shop:t', {NAME => 'a', REPLICATION_SCOPE => 1}, {NAME => 'c', REPLICATION_SCOPE => 1}"
    )
