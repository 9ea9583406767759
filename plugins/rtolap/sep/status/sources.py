"""The sources of a look, opened for a cluster's key, each optional but ZooKeeper and the master.

load reports   what region servers tell the master of their sources, by GetClusterStatus
sizes of logs  from the file system that HBase keeps them in: local, HDFS, S3
sinks          region servers of the receiving cluster, as its ZooKeeper lists them
JMX            see `jmx`
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from rtolap.base.closeable import Closeable
from rtolap.base.errors import DefinitionError, NotFound, Unavailable
from rtolap.metadata.store import MetadataStore
from rtolap.metadata.zookeeper import ZooKeeperStore
from rtolap.object_store.address import resolve
from rtolap.object_store.store import ObjectStore
from rtolap.sep.hbase import admin_pb2
from rtolap.sep.hbase.master import MasterClient
from rtolap.sep.hbase.peers import ClusterKey, Peer
from rtolap.sep.hbase.znodes import HBaseZnodes, ServerName
from rtolap.sep.status.jmx import JmxReader
from rtolap.sep.status.model import MissingSource, QueueStatus

_SESSION_TIMEOUT_S = 3.0
_MASTER_TIMEOUT_S = 5.0
_NO_PORT = 0xFFFFFFFF  # -1 in the message's unsigned number

QueueKey = tuple[str, str]  # server, id of the queue
OpenStore = Callable[[str], MetadataStore]

# Folders of logs: of living servers, of those that are taken over (`<server>-splitting`), and of closed logs.
_LOG_FOLDERS = ("WALs", "oldWALs")


class SinkCounts:
    """Opens an ensemble once, by `open_store`; `known` are open already, by their servers. Close it."""

    def __init__(self, known: Mapping[str, MetadataStore], open_store: OpenStore) -> None:
        self._known = dict(known)
        self._open_store = open_store
        self._opened: dict[str, MetadataStore] = {}

    def close(self) -> None:
        for store in self._opened.values():
            store.close()

    def read(self, peers: Mapping[str, Peer]) -> tuple[dict[str, int], list[MissingSource]]:
        """Return counts by peer, of those whose ensemble answers; the others are named."""
        counts: dict[str, int] = {}
        missing: list[MissingSource] = []
        for name, peer in sorted(peers.items()):
            try:
                key = ClusterKey.parse(peer.cluster_key)
                counts[name] = len(self._store(key.zookeeper).children(f"{key.parent}/rs"))
            except (Unavailable, DefinitionError) as error:
                missing.append(MissingSource(f"sinks of {name}", str(error)))
        return counts, missing

    def _store(self, zookeeper: str) -> MetadataStore:
        store = self._known.get(zookeeper) or self._opened.get(zookeeper)
        if store is None:
            store = self._opened[zookeeper] = self._open_store(zookeeper)
        return store


class LogSizes(NamedTuple):
    """The sizes of write-ahead logs.

    Attributes:
        bytes_by_log: the sizes, by the name of the log.
        is_exact_while_written: False on HDFS: its NameNode counts only the finished blocks of a file that is
            being written, and HBase does not ask it to count more.
    """

    bytes_by_log: dict[str, int]
    is_exact_while_written: bool


class WalSizes:
    """Reads the sizes of write-ahead logs.

    Args:
        root_dir: HBase's `hbase.rootdir`, or `hbase.wal.dir` where that is set, as a URI of `object_store`.
    """

    def __init__(self, root_dir: str) -> None:
        address = resolve(root_dir)
        self._store = ObjectStore(address.filesystem, address.root, address.uri)
        self._is_exact_while_written = urlsplit(root_dir).scheme != "hdfs"

    def read(self) -> LogSizes:
        """Read the sizes of logs. Raises NotFound where no HBase has its logs there, or Unavailable."""
        if not self._store.exists(_LOG_FOLDERS[0]):
            raise NotFound(
                "there are no logs of an HBase",
                expected=f"a folder {_LOG_FOLDERS[0]} in {self._store.uri('')}",
                found="none",
                action="name HBase's hbase.rootdir, or its hbase.wal.dir",
            )
        bytes_by_log = {
            file.path.rpartition("/")[2]: file.bytes
            for folder in _LOG_FOLDERS
            for file in self._store.list(folder)
        }
        return LogSizes(bytes_by_log, self._is_exact_while_written)


class ServerReports(msgspec.Struct, frozen=True):
    """The load reports of region servers. Times are None where nothing was since the server started.

    Attributes:
        info_ports: the ports of pages and JMX, of the servers that have one.
    """

    reports: dict[QueueKey, QueueStatus]
    info_ports: dict[str, int]


def _parse_load_reports(status: admin_pb2.ClusterStatus) -> ServerReports:
    reports: dict[QueueKey, QueueStatus] = {}
    info_ports: dict[str, int] = {}
    for live in status.live_servers:
        server, load = str(ServerName.of(live.server)), live.server_load
        if load.info_server_port not in (0, _NO_PORT):
            info_ports[server] = load.info_server_port
        for source in load.replLoadSource:
            queue = source.queueId or source.peerID  # older servers name the peer only
            peer, _, former = queue.partition("-")
            shipped = source.timeStampOfLastShippedOp > 0
            reports[server, queue] = QueueStatus(
                peer=peer,
                server=server,
                queue=queue,
                recovered_from=(former,) if former else (),
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


def open_zookeeper(zookeeper: str) -> MetadataStore:
    """Open the ZooKeeper of HBase. Raises Unavailable."""
    return ZooKeeperStore(zookeeper, root="/", session_timeout_s=_SESSION_TIMEOUT_S)


class ReplicationSources(Closeable):
    """The sources of the replication status. It owns what it is given, and must be closed.

    Args:
        store: the cluster's ZooKeeper, with absolute paths.
        wal_sizes: None where sizes are not requested.
        jmx: None where counters are not requested.
    """

    def __init__(
        self,
        cluster: ClusterKey,
        store: MetadataStore,
        master: MasterClient,
        *,
        wal_sizes: WalSizes | None = None,
        jmx: JmxReader | None = None,
        open_store: OpenStore = open_zookeeper,
    ) -> None:
        self.cluster = cluster
        self.znodes = HBaseZnodes(store, cluster.parent)
        self.master = master
        self.wal_sizes = wal_sizes
        self.jmx = jmx
        self.sinks = SinkCounts({cluster.zookeeper: store}, open_store)

    @staticmethod
    def open(
        cluster: ClusterKey,
        *,
        root_dir: str | None = None,
        with_jmx: bool = False,
        jmx_urls: Iterable[str] = (),
        master_timeout_s: float = _MASTER_TIMEOUT_S,
    ) -> ReplicationSources:
        """Open the sources. Raises Unavailable where ZooKeeper does not answer, DefinitionError for a wrong
        `root_dir`.

        `root_dir`: where the logs are, see `WalSizes`. `jmx_urls`: of JVMs with several servers, see
        `JmxReader`.
        """
        urls = tuple(jmx_urls)
        wal_sizes = WalSizes(root_dir) if root_dir else None
        store = open_zookeeper(cluster.zookeeper)
        return ReplicationSources(
            cluster,
            store,
            MasterClient(HBaseZnodes(store, cluster.parent), timeout_s=master_timeout_s),
            wal_sizes=wal_sizes,
            jmx=JmxReader(urls) if with_jmx or urls else None,
        )

    def close(self) -> None:
        if self.jmx is not None:
            self.jmx.close()
        self.master.close()
        self.sinks.close()
        self.znodes.store.close()

    def load_reports(self) -> ServerReports:
        """Read the load reports. Raises Unavailable where no master answers."""
        return _parse_load_reports(self.master.cluster_status(admin_pb2.LIVE_SERVERS))
