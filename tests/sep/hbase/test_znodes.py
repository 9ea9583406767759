"""HBase's nodes in ZooKeeper are read as it writes them, and nothing else is."""

from __future__ import annotations

import uuid

import pytest
from rtolap.base.errors import Corrupted, NotFound
from rtolap.metadata.store import Create
from rtolap.sep.hbase import admin_pb2
from rtolap.sep.hbase.znodes import HBaseZnodes, ServerName, parse_cluster_id, parse_message

from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

ID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
PREFIX = b"\xff\x00\x00\x00\x0bregionsrv:1"  # HBase's mark, a length, the name of who wrote it


@pytest.mark.parametrize(
    "data",
    [
        ID.encode(),
        PREFIX + ID.encode(),
        PREFIX + b"PBUF" + admin_pb2.ClusterId(cluster_id=ID).SerializeToString(),
    ],
    ids=["text", "text behind a prefix", "a message behind a prefix"],
)
def test_a_cluster_id_is_read_in_each_of_its_forms(data: bytes) -> None:
    assert parse_cluster_id(data) == uuid.UUID(ID)


@pytest.mark.parametrize(
    "data",
    [b"", b"orders", ID[:-1].encode(), ID.replace("-", "").encode(), f"{{{ID}}}".encode(), b"\xff\x00"],
)
def test_what_java_does_not_read_as_a_uuid_is_none(data: bytes) -> None:
    with pytest.raises(Corrupted):
        parse_cluster_id(data)


@pytest.mark.parametrize("data", [b"", b"JSON{}", b"PBUF\xff\xff\xff", b"\xff\x00\x00\x00\x7fshort"])
def test_other_data_is_refused(data: bytes) -> None:
    with pytest.raises(Corrupted):
        parse_message(data, admin_pb2.Master, "/hbase/master")


def test_servers_are_named_by_host_port_and_start() -> None:
    name = ServerName.parse("rs-1.example,16020,1700000000000")
    assert (name.address, str(name)) == ("rs-1.example:16020", "rs-1.example,16020,1700000000000")
    for wrong in ("rs,16020", "rs,x,1", ",1,2", "rs,1,2,3"):
        with pytest.raises(Corrupted):
            ServerName.parse(wrong)


def test_a_cluster_that_is_not_there_is_told() -> None:
    store = MemoryStore(MemoryEnsemble())
    with pytest.raises(NotFound, match=r"zookeeper\.znode\.parent"):
        HBaseZnodes(store, "/hbase").cluster_id()
    store.commit([Create("/hbase/rs/b,2,3", b""), Create("/hbase/rs/a,1,2", b"")])
    assert HBaseZnodes(store, "/hbase/").region_servers() == (ServerName("a", 1, 2), ServerName("b", 2, 3))
    store.close()
