"""Reports of region servers to the master about their sources: the answer of GetClusterStatus."""

from __future__ import annotations

import msgspec

from rtolap.sep.hbase import admin_pb2
from rtolap.sep.hbase.master import MasterClient
from rtolap.sep.hbase.znodes import ServerName

_NO_PORT = 0xFFFFFFFF  # -1 in the message's unsigned number
QueueKey = tuple[str, str]  # server, id of the queue


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """A source of a region server. Times in milliseconds since 1970, None: not since the server started."""

    peer: str
    reported_ms: int | None
    logs: int
    lag_ms: int
    last_shipped_ms: int | None
    last_shipped_age_ms: int | None
    next_written_ms: int | None
    shipped_ops: int | None
    running: bool


class ServerReports(msgspec.Struct, frozen=True):
    """`info_ports`: by server, of those that serve their pages and JMX."""

    reports: dict[QueueKey, LoadReport]
    info_ports: dict[str, int]


def read_load_reports(master: MasterClient) -> ServerReports:
    """Raises Unavailable where no master answers."""
    return parse_load_reports(master.cluster_status(admin_pb2.LIVE_SERVERS))


def parse_load_reports(status: admin_pb2.ClusterStatus) -> ServerReports:
    reports: dict[QueueKey, LoadReport] = {}
    info_ports: dict[str, int] = {}
    for live in status.live_servers:
        server, load = str(ServerName.of(live.server)), live.server_load
        if load.info_server_port not in (0, _NO_PORT):
            info_ports[server] = load.info_server_port
        for source in load.replLoadSource:
            queue = source.queueId or source.peerID  # older servers name the peer only
            shipped = source.timeStampOfLastShippedOp > 0
            reports[server, queue] = LoadReport(
                peer=source.peerID.partition("-")[0],
                reported_ms=load.report_end_time or None,
                logs=source.sizeOfLogQueue,
                lag_ms=source.replicationLag,
                last_shipped_ms=source.timeStampOfLastShippedOp or None,
                last_shipped_age_ms=source.ageOfLastShippedOp if shipped else None,
                next_written_ms=source.timeStampOfNextToReplicate or None,
                shipped_ops=source.oPsShipped if source.HasField("oPsShipped") else None,
                running=source.running if source.HasField("running") else True,
            )
    return ServerReports(reports, info_ports)
