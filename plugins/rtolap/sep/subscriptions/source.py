"""The cluster that subscriptions follow: its ZooKeeper and its master."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from rtolap.metadata.store import MetadataStore
from rtolap.metadata.zookeeper import ZooKeeperStore
from rtolap.model.subscription import HBaseSource, Subscription
from rtolap.sep.hbase.master import MasterClient
from rtolap.sep.hbase.peers import Peer
from rtolap.sep.hbase.znodes import HBaseZnodes


class Master(Protocol):
    """The calls of HBase's master; see `hbase.master.MasterClient`."""

    def peers(self) -> Mapping[str, Peer]: ...

    def replicated_families(self, namespace: str | None = None) -> dict[str, dict[str, bool]]: ...

    def add_peer(self, peer: Peer) -> None: ...

    def update_peer(self, peer: Peer) -> None: ...

    def remove_peer(self, peer_id: str) -> None: ...

    def enable_peer(self, peer_id: str) -> None: ...

    def disable_peer(self, peer_id: str) -> None: ...


# Deletes the journal of a subscription, by its cluster id, from Kafka. It tells why it cannot; it does not
# raise.
DeleteJournal = Callable[[Subscription, str], None]


def keep_journal(subscription: Subscription, cluster_id: str) -> None:
    """Leave the journal alone, for a person who knows Kafka."""


@dataclass(frozen=True)
class SourceCluster:
    """The cluster that a subscription follows.

    Attributes:
        store: the cluster's ZooKeeper, with absolute paths.
        consumers_leave_s: how long consumers of a dropped subscription may take to finish their deliveries.
        delete_journal: deletes the journal of a dropped subscription.
    """

    declared: HBaseSource
    store: MetadataStore
    master: Master
    consumers_leave_s: float = 40.0
    delete_journal: DeleteJournal = keep_journal

    def cluster_id(self) -> uuid.UUID:
        """Return the cluster's id. Raises NotFound where there is no HBase below the parent node."""
        return HBaseZnodes(self.store, self.declared.parent).cluster_id()


@contextmanager
def open_source(
    declared: HBaseSource, *, timeout_s: float = 30.0, delete_journal: DeleteJournal = keep_journal
) -> Iterator[SourceCluster]:
    """Open the source. Raises Unavailable where ZooKeeper does not answer."""
    store = ZooKeeperStore(declared.zookeeper, root="/", named_in="the subscription's source.zookeeper")
    try:
        with MasterClient(HBaseZnodes(store, declared.parent), timeout_s=timeout_s) as master:
            yield SourceCluster(declared, store, master, delete_journal=delete_journal)
    finally:
        store.close()
