"""HBaseHook opens the HBase that a connection of type *hbase* names; HBaseReplication answers questions about
it.

Not to be imported while DAGs are parsed: it loads a client of ZooKeeper. See `hooks.on_demand`.
"""

from __future__ import annotations

import logging
from functools import cached_property
from typing import Any

from rtolap.airflow.hooks.awaited import AwaitedConnections
from rtolap.airflow.hooks.hbase_connection import HBASE_CONN_TYPE, HBASE_DEFAULT, DueArguments
from rtolap.base.addresses import host_port
from rtolap.base.clock import SystemClock
from rtolap.base.closeable import Closeable
from rtolap.base.errors import DefinitionError, NotFound, RtolapError, Unavailable
from rtolap.base.settings import Settings
from rtolap.model.subscription import HBaseSource, Subscription
from rtolap.sep.hbase.peers import DEFAULT_PARENT, ClusterKey
from rtolap.sep.operations import (
    CaptureLook,
    SubscriptionConsumers,
    create_subscription,
    drop_subscription,
    look_at_capture,
    subscription_consumers,
)
from rtolap.sep.status.collect import collect
from rtolap.sep.status.model import NOTHING, ReplicationStatus
from rtolap.sep.status.sources import ReplicationSources
from rtolap.sep.status.wait import DueLogs, advance, due_logs
from rtolap.sep.subscriptions.records import names

log = logging.getLogger(__name__)

_ZOOKEEPER_PORT = 2181
_PARENT_KEY, _ROOT_DIR = "parent", "root_dir"
_LOOKED_AT_MASTER_S_MAX = 2.0  # ZooKeeper's part of a look stands without it


class HBaseHook(AwaitedConnections):
    """A hook that opens an HBase. The connection's host has the servers of HBase's ZooKeeper, separated by
    commas, its port is for those that name none, its extra `parent` is HBase's node, and `root_dir` the
    folder of its logs, if their sizes are wanted. The default connection may be missing; RTOLAP_HBASE then
    serves.
    """

    conn_name_attr = "hbase_conn_id"
    default_conn_name = HBASE_DEFAULT
    conn_type = HBASE_CONN_TYPE
    hook_name = "HBase (rtolap)"

    def __init__(self, hbase_conn_id: str = HBASE_DEFAULT, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hbase_conn_id = hbase_conn_id

    @cached_property
    def _declared(self) -> Any:
        """The connection; None for the default one where there is none."""
        is_default = self.hbase_conn_id == HBASE_DEFAULT
        return self.optional_connection(self.hbase_conn_id, required=not is_default)

    def root_dir_of(self, cluster: ClusterKey) -> str | None:
        """Return the folder of the cluster's logs; None where the connection is another's or says none."""
        named = None if self._declared is None else self._declared.extra_dejson.get(_ROOT_DIR)
        return str(named) if named and cluster == self.cluster else None

    @cached_property
    def cluster(self) -> ClusterKey:
        """Raises DefinitionError for a connection that names no cluster."""
        connection = self._declared
        if connection is None:
            source = HBaseSource.parse(Settings().hbase)
            return ClusterKey(source.zookeeper, source.parent)
        if not connection.host:
            raise DefinitionError(
                f"connection {self.hbase_conn_id} names no ZooKeeper", expected="its servers as host"
            )
        parent = str(connection.extra_dejson.get(_PARENT_KEY) or DEFAULT_PARENT)
        port = connection.port or _ZOOKEEPER_PORT
        return ClusterKey.parse(f"{host_port(connection.host, port)}:/{parent.strip('/')}")

    def sources(self) -> ReplicationSources:
        """Open them; close what is returned. Raises Unavailable where ZooKeeper does not answer."""
        return ReplicationSources.open(self.cluster)

    def test_connection(self) -> tuple[bool, str]:
        """Return True if ZooKeeper and HBase's master answer. The connection form calls it."""
        try:
            with self.sources() as sources:
                cluster_id = sources.znodes.cluster_id()
                peers = sources.master.peers()
        except RtolapError as error:
            return False, str(error)
        return True, f"HBase {cluster_id}, {len(peers)} peers"


class HBaseReplication(Closeable):
    """A connection to an HBase cluster. It opens on first use, and again after a failure. Close it."""

    def __init__(self, hbase_conn_id: str = HBASE_DEFAULT) -> None:
        self._hook = HBaseHook(hbase_conn_id)
        self._sources: ReplicationSources | None = None
        self._looked: ReplicationStatus | None = None

    async def load(self) -> None:
        """Read the connection without blocking; triggers call it before a thread of theirs asks HBase."""
        await self._hook.read(self._hook.hbase_conn_id)

    def close(self) -> None:
        if self._sources is not None:
            self._sources.close()
            self._sources = None

    def due(self, peer: str, before_ms: int | None) -> DueArguments:
        """See `due_logs`. Raises NotFound where HBase has no such peer."""
        sources = self._connected()
        if peer not in sources.master.peers():
            raise NotFound(f"HBase has no peer {peer}")
        due = due_logs(sources.znodes, peer, before_ms=before_ms)
        return {"peer": peer, "logs": list(due.logs), "unrolled": list(due.unrolled)}

    def advance(self, due: DueArguments) -> DueArguments:
        """See `sep.status.wait.advance`."""
        noted = DueLogs(due["peer"], tuple(due["logs"]), tuple(due["unrolled"]))
        try:
            left = advance(self._connected().znodes, noted, now_ms=SystemClock().now_ms())
        except Unavailable:
            self.close()
            raise
        return {"peer": left.peer, "logs": list(left.logs), "unrolled": list(left.unrolled)}

    def caught_up(self) -> dict[str, bool]:
        """Return by enabled subscription whether its region servers report nothing to replicate."""
        try:
            sources = self._connected()
            status = collect(sources, SystemClock().now_ms(), before=self._looked)
            ours = names(sources.znodes.store)
        except Unavailable:
            self.close()
            raise
        self._looked = status
        enabled = {peer.peer for peer in status.peers if peer.enabled}
        return {
            name: bool(queues) and all(row.reason == NOTHING for row in queues)
            for name in ours
            if name in enabled
            for queues in (status.queues_of(name),)
        }

    def create(self, subscription: Subscription) -> list[str]:
        """Create it where its file says, unless it is there; return what HBase does not ship of it."""
        made = create_subscription(subscription, self._hbase, Settings(), SystemClock(), log.warning)
        return made.warnings

    @property
    def _hbase(self) -> str:
        """The connection's cluster, as the settings name one."""
        return f"{self._hook.cluster.zookeeper}{self._hook.cluster.parent}"

    def drop(self, name: str, subscription: Subscription | None) -> None:
        """Drop a subscription from the cluster in its definition, else from the connection's.

        Raises NotFound.
        """
        drop_subscription(name, self.source_of(subscription), Settings(), log.warning)

    def consumers(self, name: str, subscription: Subscription | None) -> SubscriptionConsumers:
        """Return the consumers of a subscription on the cluster in its definition, else on the connection's.

        Raises NotFound.
        """
        return subscription_consumers(name, self.source_of(subscription))

    def look(self, source: HBaseSource, before: ReplicationStatus | None) -> CaptureLook:
        """Look at a cluster once, over connections of its own. See `look_at_capture`. Sizes of logs are those
        of the connection's cluster, if it names their folder."""
        key = ClusterKey(source.zookeeper, source.parent)
        with ReplicationSources.open(
            key, root_dir=self._hook.root_dir_of(key), master_timeout_s=_LOOKED_AT_MASTER_S_MAX
        ) as sources:
            return look_at_capture(sources, SystemClock().now_ms(), before)

    def source_of(self, subscription: Subscription | None) -> HBaseSource:
        """Return the cluster in its definition, else the connection's."""
        if subscription is not None and subscription.source.zookeeper:
            return subscription.source
        cluster = self._hook.cluster
        return HBaseSource(cluster.zookeeper, cluster.parent)

    def _connected(self) -> ReplicationSources:
        if self._sources is None:
            self._sources = self._hook.sources()
        return self._sources
