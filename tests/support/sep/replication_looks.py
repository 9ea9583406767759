"""A cluster of three region servers whose replication is looked at: nodes and reports as HBase has them."""

from __future__ import annotations

from collections.abc import Mapping

from rtolap.base.errors import Unavailable
from rtolap.metadata.store import Create, Delete, MetadataStore, Put
from rtolap.sep.hbase import admin_pb2, rpc_pb2
from rtolap.sep.hbase.master import MasterClient
from rtolap.sep.hbase.peers import ClusterKey, Peer
from rtolap.sep.hbase.queues import QueueId, parse_position
from rtolap.sep.hbase.znodes import HBaseZnodes, ServerName
from rtolap.sep.status.jmx import JmxReader
from rtolap.sep.status.sources import ReplicationSources, WalSizes

from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

KEY = ClusterKey("zk:2181", "/hbase")
SERVERS = tuple(ServerName(f"h{n}.example.com", 16020, 1_700_000_000_000 + n) for n in range(3))
REPORTED_MS = 1_700_000_100_000


def log_name(server: ServerName, created_ms: int) -> str:
    return f"{server.host}%2C{server.port}%2C{server.start_code}.{created_ms}"


class FakeMaster(MasterClient):
    """Answers with what a test sets; `silent`: does not."""

    def __init__(self) -> None:
        self.silent = False
        self.status = admin_pb2.ClusterStatus()
        self.known: dict[str, Peer] = {}

    def peers(self) -> dict[str, Peer]:
        self._answer()
        return self.known

    def cluster_status(self, *options: admin_pb2.Option) -> admin_pb2.ClusterStatus:
        self._answer()
        return self.status

    def close(self) -> None:
        pass

    def _answer(self) -> None:
        if self.silent:
            raise Unavailable("no master answers")


class LookedAtCluster:
    """`SERVERS` live, without peers, queues and reports at first."""

    def __init__(self) -> None:
        self.store = MemoryStore(MemoryEnsemble())
        self.master = FakeMaster()
        for server in SERVERS:
            self.node(f"/hbase/rs/{server}")

    @property
    def znodes(self) -> HBaseZnodes:
        return HBaseZnodes(self.store, KEY.parent)

    def sources(
        self, *, wal_sizes: WalSizes | None = None, jmx: JmxReader | None = None
    ) -> ReplicationSources:
        return ReplicationSources(
            KEY, self.store, self.master, wal_sizes=wal_sizes, jmx=jmx, open_store=_no_other_ensemble
        )

    def add_peer(
        self, name: str, *, sinks: int = 0, enabled: bool = True, zookeeper: str = "zk:2181"
    ) -> None:
        self.master.known[name] = Peer(
            id=name, cluster_key=f"{zookeeper}:/rtolap/sep/{name}", enabled=enabled
        )
        for number in range(sinks):
            self.node(f"/rtolap/sep/{name}/rs/sink,{number},1")

    def queue(self, server: ServerName, queue: str, positions: Mapping[int, int | None]) -> None:
        """Put a queue, with `positions` by the time a log was begun; those before are gone."""
        path = f"/hbase/replication/rs/{server}/{queue}"
        origin = (*QueueId.parse(queue).former_servers, server)[0]
        wanted = {log_name(origin, created_ms): data for created_ms, data in positions.items()}
        for name in set(self.store.children(path)) - set(wanted):
            self.forget(f"{path}/{name}")
        for name, position in wanted.items():
            self.node(f"{path}/{name}", b"" if position is None else position_data(position))

    def forget_queue(self, server: ServerName, queue: str) -> None:
        self.queue(server, queue, {})
        self.forget(f"/hbase/replication/rs/{server}/{queue}")

    def report(self, server: ServerName, queue: str, *, info_port: int = 0, **values: int | bool) -> None:
        """Report `values`, which are fields of HBase's message."""
        live = self.master.status.live_servers.add()
        live.server.CopyFrom(
            rpc_pb2.ServerName(host_name=server.host, port=server.port, start_code=server.start_code)
        )
        live.server_load.info_server_port = info_port
        live.server_load.report_end_time = REPORTED_MS
        source = live.server_load.replLoadSource.add(
            peerID=queue, queueId=queue, recovered="-" in queue, running=True
        )
        for name, value in values.items():
            setattr(source, name, value)

    def node(self, path: str, data: bytes = b"") -> None:
        there = self.store.get(path)
        if there is None:
            self.store.commit([Create(path, data)])
        else:
            self.store.commit([Put(path, data, there.version)])

    def forget(self, path: str) -> None:
        there = self.store.get(path)
        assert there is not None
        self.store.commit([Delete(path, there.version)])


def position_data(position: int) -> bytes:
    data: bytes = b"PBUF" + admin_pb2.ReplicationHLogPosition(position=position).SerializeToString()
    assert parse_position(data, "position") == position
    return data


def _no_other_ensemble(zookeeper: str) -> MetadataStore:
    raise Unavailable(f"ZooKeeper at {zookeeper} does not answer")
