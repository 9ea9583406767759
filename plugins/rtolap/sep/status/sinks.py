"""Sinks of peers: the region servers of the receiving cluster, as its ZooKeeper lists them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rtolap.base.errors import DefinitionError, Unavailable
from rtolap.metadata.store import MetadataStore
from rtolap.sep.hbase.cluster_keys import ClusterKey
from rtolap.sep.hbase.peers import Peer
from rtolap.sep.status.model import MissingSource

OpenStore = Callable[[str], MetadataStore]


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
        """By peer, of those whose ensemble answers; the others are named."""
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
