"""The sources of a look, opened for a cluster's key."""

from __future__ import annotations

from collections.abc import Iterable

from rtolap.metadata.store import MetadataStore
from rtolap.metadata.zookeeper import ZooKeeperStore
from rtolap.sep.hbase.cluster_keys import ClusterKey
from rtolap.sep.hbase.master import MasterClient
from rtolap.sep.hbase.znodes import HBaseZnodes
from rtolap.sep.status.jmx import JmxReader
from rtolap.sep.status.load_reports import ServerReports, read_load_reports
from rtolap.sep.status.sinks import OpenStore, SinkCounts
from rtolap.sep.status.wal_sizes import WalSizes

_SESSION_TIMEOUT_S = 3.0
_MASTER_TIMEOUT_S = 5.0


def open_zookeeper(zookeeper: str) -> MetadataStore:
    """Raises Unavailable."""
    return ZooKeeperStore(zookeeper, root="/", session_timeout_s=_SESSION_TIMEOUT_S)


class ReplicationSources:
    """`store`: the cluster's ZooKeeper, paths absolute. `wal_sizes` and `jmx`: None where not asked for.

    Close it: it owns what it is given.
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
        """Raises Unavailable where ZooKeeper does not answer, DefinitionError for a wrong `root_dir`.

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

    def __enter__(self) -> ReplicationSources:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def close(self) -> None:
        if self.jmx is not None:
            self.jmx.close()
        self.master.close()
        self.sinks.close()
        self.znodes.store.close()

    def load_reports(self) -> ServerReports:
        return read_load_reports(self.master)
