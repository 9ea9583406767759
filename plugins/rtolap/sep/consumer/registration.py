"""Registration of a consumer's ports in ZooKeeper, where region servers look for the servers of a peer.

    <root>/rs/<host,port,startcode>   ephemeral, a node for each port
    <root>/master                     ephemeral, PBUF Master: HBase 3 asks there for the ports

A node below `rs` with any other name stops all delivery to the peer, so names are checked before they are
made. HBase 3 does not read these names: it takes the address of `master`, and asks there, as any client of a
cluster does, which servers there are, and which are out of service. `small_master` answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from rtolap.base.addresses import is_unspecified
from rtolap.base.errors import Corrupted, DefinitionError, NotLeader
from rtolap.metadata.store import Check, Create, Delete, MetadataStore, Operation
from rtolap.metadata.updates import retried
from rtolap.sep.consumer.calls import Answer
from rtolap.sep.hbase import admin_pb2, rpc_pb2
from rtolap.sep.hbase.znodes import ServerName

_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_PORT_MAX: Final = 65535
M = TypeVar("M", bound=Message)


class Registration:
    """The registered nodes of one process. They vanish with the session of `store`.

    Args:
        root: the subscription's root node, such as `/rtolap/sep/orders`.
        fence: the path of a node that must exist for a registration: the leader's candidacy. A process that
            no longer leads cannot register.
    """

    def __init__(self, store: MetadataStore, root: str, sinks: Sequence[ServerName]) -> None:
        for sink in sinks:
            check_sink(sink)
        self._store = store
        self._root = root.rstrip("/")
        self._sinks = tuple(sinks)

    @retried
    def register(self, fence: str | None = None) -> None:
        """Make the nodes that are missing, all or none; the node of a master before is replaced.

        With a fence the leader's ports are the only ones: what a term before has left below `rs` is removed,
        for it may stand there for as long as this session lives, and region servers would go on calling it.
        NotLeader: `fence` is gone. Raises what the store raises where it cannot be reached.
        """
        if fence is not None and self._store.get(fence) is None:
            raise NotLeader(f"{fence} is gone: another process registers its ports")
        operations: list[Operation] = [
            Create(path, b"", ephemeral=True) for path in self._paths() if self._store.get(path) is None
        ]
        if fence is not None:
            operations += [Delete(path) for path in self._registered_paths() if path not in self._paths()]
        master, own = self._store.get(self._master), self._master_data()
        if master is None or master.data != own:
            operations += [] if master is None else [Delete(self._master, master.version)]
            operations.append(Create(self._master, own, ephemeral=True))
        if operations:
            self._store.commit([*([] if fence is None else [Check(fence, -1)]), *operations])

    @retried
    def withdraw(self) -> None:
        """Remove the nodes; region servers stop to open connections within moments."""
        operations = [Delete(path) for path in self._paths() if self._store.get(path) is not None]
        master = self._store.get(self._master)
        if master is not None and master.data == self._master_data():
            operations.append(Delete(self._master, master.version))
        if operations:
            self._store.commit(operations)

    @property
    def _master(self) -> str:
        return f"{self._root}/master"

    def _paths(self) -> list[str]:
        return [f"{self._root}/rs/{sink}" for sink in self._sinks]

    def _registered_paths(self) -> list[str]:
        return [f"{self._root}/rs/{name}" for name in self._store.children(f"{self._root}/rs")]

    def _master_data(self) -> bytes:
        name = _message(self._sinks[0])
        return b"PBUF" + admin_pb2.Master(master=name, rpc_version=0, info_port=0).SerializeToString()


def check_sink(sink: ServerName) -> None:
    """Raise DefinitionError for a name that region servers could not parse, or to which they could not
    connect."""
    if not _HOST.fullmatch(sink.host) or is_unspecified(sink.host):
        raise DefinitionError(
            "a consumer cannot be registered under this host",
            expected="a name or IPv4 address that region servers reach, without commas, colons or spaces",
            found=sink.host,
            action="name the host that region servers shall connect to",
        )
    if not 0 < sink.port <= _PORT_MAX or sink.start_code <= 0:
        raise DefinitionError(
            "a consumer cannot be registered under this name",
            expected=f"a port of 1 to {_PORT_MAX} and a start code above 0",
            found=str(sink),
        )


def small_master(cluster_id: str, sinks: Callable[[], Sequence[ServerName]]) -> Mapping[str, Answer]:
    """Return the answers by method.

    `cluster_id`: what is in `<root>/hbaseid`. `sinks`: all that are registered; the first one is the master.
    """

    def cluster_status(parameter: bytes) -> bytes:
        requested = set(_parsed(admin_pb2.GetClusterStatusRequest, parameter).options)
        names = [_message(sink) for sink in sinks()]
        status = admin_pb2.ClusterStatus()
        if not requested or admin_pb2.CLUSTER_ID in requested:
            status.cluster_id.cluster_id = cluster_id
        if not requested or admin_pb2.SERVERS_NAME in requested:
            status.servers_name.extend(names)
        if not requested or admin_pb2.LIVE_SERVERS in requested:
            for name in names:
                status.live_servers.add(server=name, server_load=admin_pb2.ServerLoad())
        if (not requested or admin_pb2.MASTER in requested) and names:
            status.master.CopyFrom(names[0])
        return admin_pb2.GetClusterStatusResponse(cluster_status=status).SerializeToString()

    def decommissioned(parameter: bytes) -> bytes:
        _parsed(admin_pb2.ListDecommissionedRegionServersRequest, parameter)
        return admin_pb2.ListDecommissionedRegionServersResponse().SerializeToString()

    return {"GetClusterStatus": cluster_status, "ListDecommissionedRegionServers": decommissioned}


def _message(sink: ServerName) -> rpc_pb2.ServerName:
    return rpc_pb2.ServerName(host_name=sink.host, port=sink.port, start_code=sink.start_code)


def _parsed(kind: type[M], parameter: bytes) -> M:
    message = kind()
    try:
        message.ParseFromString(parameter)
    except DecodeError as error:
        raise Corrupted("the parameter of a call cannot be read", expected=kind.__name__) from error
    return message
