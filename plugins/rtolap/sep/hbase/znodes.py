"""HBase's nodes in ZooKeeper: their paths below its parent node, and what is in them.

<parent>/master                              PBUF Master: where the active one answers
<parent>/hbaseid                             PBUF ClusterId, or the UUID as text
<parent>/rs/<host,port,startcode>            region servers that live
<parent>/meta-region-server                  PBUF MetaRegionServer: who has hbase:meta
<parent>/replication/peers/<id>              PBUF ReplicationPeer
<parent>/replication/rs/<server>/<queue>/…   see `queues`
"""

from __future__ import annotations

import uuid
from typing import TypeVar

import msgspec
from google.protobuf.message import DecodeError, Message

from rtolap.base.addresses import host_port
from rtolap.base.errors import Corrupted, NotFound, Unavailable
from rtolap.metadata.store import MetadataStore
from rtolap.sep.hbase import admin_pb2, rpc_pb2

_METADATA_MAGIC = 0xFF
_PROTOBUF_MAGIC = b"PBUF"
M = TypeVar("M", bound=Message)


class ServerName(msgspec.Struct, frozen=True, order=True):
    """A start of a server, as text `host,port,startcode`. The start code is in milliseconds since 1970."""

    host: str
    port: int
    start_code: int

    @property
    def address(self) -> str:
        return host_port(self.host, self.port)

    def __str__(self) -> str:
        return f"{self.host},{self.port},{self.start_code}"

    @staticmethod
    def parse(text: str) -> ServerName:
        """Parse a server's name. Raises Corrupted for anything else."""
        parts = text.split(",")
        if len(parts) != 3 or not parts[0] or not (parts[1].isdecimal() and parts[2].isdecimal()):
            raise Corrupted("not the name of a server", expected="host,port,startcode", found=repr(text))
        return ServerName(parts[0], int(parts[1]), int(parts[2]))

    @staticmethod
    def of(message: rpc_pb2.ServerName) -> ServerName:
        return ServerName(message.host_name, message.port, message.start_code)


class HBaseZnodes:
    """Reads the nodes below `parent` (`/hbase`) of a store whose paths are absolute."""

    def __init__(self, store: MetadataStore, parent: str) -> None:
        self.store = store
        self.parent = "/" + parent.strip("/")

    def master(self) -> ServerName:
        """Return the active master. Raises Unavailable where there is none: it starts, or another takes
        over."""
        master = ServerName.of(self._message("master", admin_pb2.Master).master)
        if not master.host:
            raise Corrupted(f"{self.parent}/master names no server")
        return master

    def meta_server(self) -> ServerName:
        return ServerName.of(self._message("meta-region-server", admin_pb2.MetaRegionServer).server)

    def cluster_id(self) -> uuid.UUID:
        """Return the cluster's id. Raises NotFound where no HBase has ever had this parent node."""
        node = self.store.get(f"{self.parent}/hbaseid")
        if node is None:
            raise NotFound(
                f"there is no HBase below {self.parent}",
                expected=f"the node {self.parent}/hbaseid",
                found="none",
                action="name its zookeeper.znode.parent",
            )
        return parse_cluster_id(node.data)

    def region_servers(self) -> tuple[ServerName, ...]:
        """Return the live region servers."""
        return tuple(ServerName.parse(name) for name in self.store.children(f"{self.parent}/rs"))

    def _message(self, name: str, kind: type[M]) -> M:
        path = f"{self.parent}/{name}"
        node = self.store.get(path)
        if node is None:
            raise Unavailable(
                f"HBase's node {path} is not there",
                expected="a running HBase",
                action="start it, or name its parent node",
            )
        return parse_message(node.data, kind, path)


def parse_message(data: bytes, kind: type[M], what: str) -> M:
    """Return a message behind HBase's four bytes PBUF. Raises Corrupted for anything else."""
    payload = without_metadata(data)
    if not payload.startswith(_PROTOBUF_MAGIC):
        raise Corrupted(f"{what} is not HBase's", expected="PBUF", found=repr(payload[:4]))
    message: M = kind()
    try:
        message.ParseFromString(payload[len(_PROTOBUF_MAGIC) :])
    except DecodeError as error:
        raise Corrupted(f"{what} cannot be read", expected=kind.__name__, found=error) from error
    return message


def parse_cluster_id(data: bytes) -> uuid.UUID:
    """Parse a cluster's id. Raises Corrupted where it is no UUID; a region server that reads it aborts."""
    payload = without_metadata(data)
    if payload.startswith(_PROTOBUF_MAGIC):
        text = parse_message(data, admin_pb2.ClusterId, "hbaseid").cluster_id
    else:
        text = payload.decode("latin-1")
    try:
        cluster_id = uuid.UUID(text)
    except ValueError as error:
        raise Corrupted("hbaseid is no UUID", expected="a UUID as text", found=repr(text)) from error
    if str(cluster_id) != text:  # Java's parser takes hyphens only where they belong
        raise Corrupted("hbaseid is not as Java writes a UUID", expected=cluster_id, found=repr(text))
    return cluster_id


def without_metadata(data: bytes) -> bytes:
    """Return the node's own data: HBase may put 0xFF, the length of a prefix and that prefix in front of
    it.
    """
    if not data or data[0] != _METADATA_MAGIC:
        return data
    start = 5 + int.from_bytes(data[1:5], "big")
    if len(data) < 5 or start > len(data):
        raise Corrupted(
            "a node's prefix is cut off", expected=f"{start} bytes or more", found=f"{len(data)} bytes"
        )
    return data[start:]
