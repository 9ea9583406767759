"""A model of a source cluster in memory: peers, and the rule that a region server lives by.

`ModelSource.crash_at(n)` ends the process that works, right before or right after its n-th change.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Mapping, Sequence

import msgspec
from rtolap.base.errors import Corrupted, NotFound, Refused
from rtolap.metadata.store import Create, Operation
from rtolap.model.subscription import HBaseSource, Subscription
from rtolap.sep.delivery.journal import journal_name
from rtolap.sep.hbase.peers import Peer
from rtolap.sep.hbase.znodes import parse_cluster_id
from rtolap.sep.subscriptions.source import SourceCluster

from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

OWN_ID = uuid.UUID(int=1)
Guard = Callable[[Callable[[], None]], None]


class Crash(BaseException):
    """The process ends: nothing of ours catches it."""


class ModelMaster:
    """Peers of one cluster. A peer that is added or enabled makes region servers read its hbaseid: they abort
    where that is no UUID. `families`: by table, whether they are shipped."""

    def __init__(self, ensemble: MemoryEnsemble) -> None:
        self._ensemble = ensemble
        self.known: dict[str, Peer] = {}
        self.families: dict[str, dict[str, bool]] = {}

    def peers(self) -> Mapping[str, Peer]:
        return dict(self.known)

    def replicated_families(self, namespace: str | None = None) -> dict[str, dict[str, bool]]:
        return self.families

    def add_peer(self, peer: Peer) -> None:
        if peer.id in self.known or "-" in peer.id:
            raise Refused(f"peer {peer.id}")
        self.known[peer.id] = peer
        self.region_servers_read()

    def update_peer(self, peer: Peer) -> None:
        old = self._peer(peer.id)
        if old.cluster_key != peer.cluster_key:
            raise Refused("the cluster key of a peer cannot change")
        self.known[peer.id] = msgspec.structs.replace(peer, enabled=old.enabled)

    def remove_peer(self, peer_id: str) -> None:
        self._peer(peer_id)
        del self.known[peer_id]

    def enable_peer(self, peer_id: str) -> None:
        self.known[peer_id] = msgspec.structs.replace(self._peer(peer_id), enabled=True)
        self.region_servers_read()

    def disable_peer(self, peer_id: str) -> None:
        self.known[peer_id] = msgspec.structs.replace(self._peer(peer_id), enabled=False)

    def region_servers_read(self) -> None:
        for peer in self.known.values():
            path = peer.cluster_key.rpartition(":")[2] + "/hbaseid"
            node = self._ensemble.nodes.get(path)
            if node is None:
                raise AssertionError(f"peer {peer.id} has no cluster id")
            try:
                assert parse_cluster_id(node.data) != OWN_ID
            except Corrupted as error:
                raise AssertionError("every region server aborts") from error

    def _peer(self, peer_id: str) -> Peer:
        if peer_id not in self.known:
            raise NotFound(peer_id)
        return self.known[peer_id]


class ModelSource:
    """`cluster` is what a command works on; `ensemble`, `master` and `topics` of Kafka what survives it."""

    def __init__(self) -> None:
        self.ensemble = MemoryEnsemble()
        self.master = ModelMaster(self.ensemble)
        self.store = MemoryStore(self.ensemble)
        self.topics: set[str] = set()
        self.store.commit([Create("/hbase/hbaseid", str(OWN_ID).encode())])

    @property
    def cluster(self) -> SourceCluster:
        return self._opened(self.store, self.master, lambda change: change())

    def crash_at(self, number: int, *, after: bool) -> SourceCluster:
        """Return a cluster whose `number`-th change, counted from 0, raises Crash: before it is made, or
        after."""
        counter = itertools.count()

        def guarded(change: Callable[[], None]) -> None:
            is_last = next(counter) == number
            if is_last and not after:
                raise Crash
            change()
            if is_last:
                raise Crash

        store, master = _CrashingStore(self.ensemble, guarded), _CrashingMaster(self.master, guarded)
        return self._opened(store, master, guarded)

    def _opened(
        self, store: MemoryStore, master: ModelMaster | _CrashingMaster, guarded: Guard
    ) -> SourceCluster:
        def delete_journal(subscription: Subscription, cluster_id: str) -> None:
            guarded(lambda: self.topics.discard(journal_name(subscription.name, cluster_id)))

        declared = HBaseSource("127.0.0.1:2181", "/hbase")
        return SourceCluster(declared, store, master, consumers_leave_s=0.0, delete_journal=delete_journal)


class _CrashingStore(MemoryStore):
    def __init__(self, ensemble: MemoryEnsemble, guarded: Guard) -> None:
        super().__init__(ensemble)
        self._guarded = guarded

    def commit(self, operations: Sequence[Operation]) -> None:
        self._guarded(lambda: MemoryStore.commit(self, operations))


class _CrashingMaster:
    def __init__(self, master: ModelMaster, guarded: Guard) -> None:
        self._master, self._guarded = master, guarded

    def peers(self) -> Mapping[str, Peer]:
        return self._master.peers()

    def replicated_families(self, namespace: str | None = None) -> dict[str, dict[str, bool]]:
        return self._master.replicated_families(namespace)

    def add_peer(self, peer: Peer) -> None:
        self._guarded(lambda: self._master.add_peer(peer))

    def update_peer(self, peer: Peer) -> None:
        self._guarded(lambda: self._master.update_peer(peer))

    def remove_peer(self, peer_id: str) -> None:
        self._guarded(lambda: self._master.remove_peer(peer_id))

    def enable_peer(self, peer_id: str) -> None:
        self._guarded(lambda: self._master.enable_peer(peer_id))

    def disable_peer(self, peer_id: str) -> None:
        self._guarded(lambda: self._master.disable_peer(peer_id))
