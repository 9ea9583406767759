"""The ZooKeeper store in memory:  one `MemoryEnsemble`, any number of sessions on it.

For tests and the in-process harness: `expire` and `disconnect` play the network, the ensemble's `fault`
breaks commits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rtolap.base.errors import CommitUnknown, SessionLost, Unavailable
from rtolap.metadata.commit_size import check_size
from rtolap.metadata.dispatch import Dispatcher
from rtolap.metadata.election import Candidacy
from rtolap.metadata.memory_ensemble import MemoryEnsemble
from rtolap.metadata.store import Create, Operation, Versioned

__all__ = ["MemoryEnsemble", "MemoryStore"]


class _Watch:
    def __init__(self, store: MemoryStore, path: str, changed: Callable[[], None]) -> None:
        self.path = path
        self._store = store
        self._changed = changed
        self._stopped = False

    def fire(self) -> None:
        if not self._stopped:
            self._changed()

    def stop(self) -> None:
        self._stopped = True
        self._store.forget(self)


class MemoryStore:
    """One session. See `store.MetadataStore` for the contract."""

    def __init__(self, ensemble: MemoryEnsemble) -> None:
        self.ensemble = ensemble
        self._dispatcher = Dispatcher("memory")
        self._watches: list[_Watch] = []
        self._elections: list[Candidacy] = []
        self._lost: list[Callable[[], None]] = []
        self._session = 0
        self._connected = True
        self._closed = False
        with ensemble.lock:
            ensemble.stores.append(self)

    # -- the seam ---------------------------------------------------------------------------------------

    def get(self, path: str) -> Versioned | None:
        self._reachable()
        with self.ensemble.lock:
            node = self.ensemble.nodes.get(path)
            return Versioned(node.data, node.version) if node is not None else None

    def children(self, path: str) -> tuple[str, ...]:
        self._reachable()
        prefix = path.rstrip("/") + "/"
        with self.ensemble.lock:
            names = [p[len(prefix) :] for p in self.ensemble.nodes if p.startswith(prefix)]
        return tuple(sorted(name for name in names if name and "/" not in name))

    def commit(self, operations: Sequence[Operation]) -> None:
        check_size(operations)
        self._reachable()
        fault = self.ensemble.fault(operations) if self.ensemble.fault else None
        if fault == "before":
            raise CommitUnknown("the connection broke before the commit arrived")
        self.ensemble.apply(operations, self._owner())
        if fault == "after":
            raise CommitUnknown("the connection broke after the commit was applied")

    def watch(self, path: str, changed: Callable[[], None]) -> _Watch:
        watch = _Watch(self, path, changed)
        with self.ensemble.lock:
            self._watches.append(watch)
        return watch

    def elect(self, path: str, identity: str, changed: Callable[[], None]) -> Candidacy:
        election = Candidacy(self, self._dispatcher, path, identity, changed)
        with self.ensemble.lock:
            self._elections.append(election)
        return election

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        self._lost.append(callback)

    def sync(self) -> None:
        self._reachable()

    def connected(self) -> bool:
        return self._connected and not self._closed

    def close(self) -> None:
        for election in self._elections:
            election.close()
        with self.ensemble.lock:
            self._closed = True
            if self in self.ensemble.stores:
                self.ensemble.stores.remove(self)
            self.ensemble.remove_owned(self._owner())
        self._dispatcher.close()

    # -- what elections and the ensemble need -----------------------------------------------------------

    def session_number(self) -> int:
        return self._session

    def create_sequential(self, prefix: str, data: bytes) -> None:
        self._reachable()
        with self.ensemble.lock:
            self.ensemble.sequence += 1
            node = Create(f"{prefix}{self.ensemble.sequence:010d}", data, ephemeral=True)
            self.ensemble.apply([node], self._owner())

    def touched(self, paths: Sequence[str]) -> None:
        for watch in list(self._watches):
            if watch.path in paths:
                self._dispatcher.wake(watch.fire)

    def forget(self, watch: _Watch) -> None:
        with self.ensemble.lock:
            if watch in self._watches:
                self._watches.remove(watch)

    def settle(self, timeout_s: float) -> bool:
        return self._dispatcher.settle(timeout_s)

    # -- playing the network ----------------------------------------------------------------------------

    def disconnect(self) -> None:
        """The connection breaks; the session lives on for now."""
        self._connected = False
        self._wake_all()

    def reconnect(self) -> None:
        self._connected = True
        self._wake_all()

    def expire(self) -> None:
        """The session is lost, and a new one takes its place."""
        with self.ensemble.lock:
            owner = self._owner()
            self._session += 1
            self.ensemble.remove_owned(owner)
        self._connected = True
        self._wake_all()
        for callback in self._lost:
            self._dispatcher.wake(callback)

    def _wake_all(self) -> None:
        for election in list(self._elections):
            election.wake()
        for watch in list(self._watches):
            self._dispatcher.wake(watch.fire)

    def _owner(self) -> tuple[int, int]:
        return (id(self), self._session)

    def _reachable(self) -> None:
        if self._closed:
            raise SessionLost("the session is closed")
        if not self._connected:
            raise Unavailable("the ensemble cannot be reached", action="wait for the connection")
