"""A consumer as the small master that HBase 3 asks which servers there are, and which are out of service.

HBase 3 does not read the names below `rs`. It takes the address of `<root>/master`, and asks there, as any
client of a cluster does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from rtolap.base.errors import Corrupted
from rtolap.sep.consumer.calls import Answer
from rtolap.sep.hbase import admin_pb2, rpc_pb2
from rtolap.sep.hbase.znodes import ServerName

M = TypeVar("M", bound=Message)


def small_master(cluster_id: str, sinks: Callable[[], Sequence[ServerName]]) -> Mapping[str, Answer]:
    """Return the answers by method.

    `cluster_id`: what is in `<root>/hbaseid`. `sinks`: all that are registered; the first one is the master.
    """

    def cluster_status(parameter: bytes) -> bytes:
        asked = set(_parsed(admin_pb2.GetClusterStatusRequest, parameter).options)
        names = [_message(sink) for sink in sinks()]
        status = admin_pb2.ClusterStatus()
        if not asked or admin_pb2.CLUSTER_ID in asked:
            status.cluster_id.cluster_id = cluster_id
        if not asked or admin_pb2.SERVERS_NAME in asked:
            status.servers_name.extend(names)
        if not asked or admin_pb2.LIVE_SERVERS in asked:
            for name in names:
                status.live_servers.add(server=name, server_load=admin_pb2.ServerLoad())
        if (not asked or admin_pb2.MASTER in asked) and names:
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
