"""The ZooKeeper store in memory: what an ensemble keeps, and any number of sessions on it.

For tests and the in-process harness: `expire` and `disconnect` play the network, the ensemble's `fault`
breaks commits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rtolap.base.errors import CommitConflict, CommitUnknown, SessionLost, Unavailable
from rtolap.metadata.dispatch import Dispatcher
from rtolap.metadata.election import Candidacy
from rtolap.metadata.store import Check, Create, Delete, Operation, Put, Versioned, check_size

Fault = Callable[[Sequence[Operation]], Literal["before", "after"] | None]


@dataclass
class _Node:
    data: bytes
    version: int
    owner: tuple[int, int] | None  # (store, session) of an ephemeral
    children_stamp: int = 0


class MemoryEnsemble:
    """The shared tree. `fault` is called before every commit, and says whether to break it "before" or
    "after" applying."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.nodes: dict[str, _Node] = {"": _Node(b"", 0, None)}
        self.sequence = 0
        self.commits = 0
        self.stores: list[MemoryStore] = []
        self.fault: Fault | None = None

    def settle(self, timeout_s: float = 10.0) -> bool:
        """Wait until every session has received everything."""
        return all(store.settle(timeout_s) for store in list(self.stores))

    def apply(self, operations: Sequence[Operation], owner: tuple[int, int]) -> None:
        with self.lock:
            changed = dict(self.nodes)
            touched: list[str] = []
            for operation in operations:
                touched += _apply(changed, operation, owner)
            _stamp(changed, self.nodes.keys() ^ changed.keys(), self._next_stamp())
            self.nodes = changed
            self.notify_watchers(touched)

    def remove_owned(self, owner: tuple[int, int]) -> None:
        with self.lock:
            gone = [path for path, node in self.nodes.items() if node.owner == owner]
            for path in gone:
                del self.nodes[path]
            _stamp(self.nodes, gone, self._next_stamp())
            self.notify_watchers([*gone, *(path.rpartition("/")[0] for path in gone)])

    def _next_stamp(self) -> int:
        self.commits += 1
        return self.commits

    def notify_watchers(self, paths: Sequence[str]) -> None:
        for store in list(self.stores):
            store.touched(paths)


def _stamp(nodes: dict[str, _Node], changed: Iterable[str], stamp: int) -> None:
    """Give another stamp to the parents of nodes that were made or deleted."""
    for parent in {path.rpartition("/")[0] for path in changed}:
        if parent in nodes:
            nodes[parent] = replace(nodes[parent], children_stamp=stamp)


def _apply(nodes: dict[str, _Node], operation: Operation, owner: tuple[int, int]) -> list[str]:
    """Apply an operation. Returns the paths whose watchers have to be called."""
    path = operation.path
    parent = path.rpartition("/")[0]
    node = nodes.get(path)
    match operation:
        case Create():
            if node is not None:
                raise CommitConflict(f"{path} exists already")
            made = [path]
            while parent not in nodes:
                nodes[parent] = _Node(b"", 0, None)
                made.append(parent)
                parent = parent.rpartition("/")[0]
            nodes[path] = _Node(operation.data, 0, owner if operation.ephemeral else None)
            return [*made, parent]
        case Put() | Check() | Delete():
            if node is None:
                raise CommitConflict(f"{path} does not exist")
            if operation.version not in (-1, node.version):
                raise CommitConflict(f"{path} has changed", expected=operation.version, found=node.version)
    if isinstance(operation, Put):
        nodes[path] = replace(node, data=operation.data, version=node.version + 1)
        return [path]
    if isinstance(operation, Delete):
        if any(other.startswith(path + "/") for other in nodes):
            raise CommitConflict(f"{path} has children")
        del nodes[path]
        return [path, parent]
    return []


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
    """A session. `store.MetadataStore` has the contract."""

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
            if node is None:
                return None
            return Versioned(node.data, node.version, node.owner is not None, node.children_stamp)

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
        """Break the connection; the session lives on for now."""
        self._connected = False
        self._wake_all()

    def reconnect(self) -> None:
        self._connected = True
        self._wake_all()

    def expire(self) -> None:
        """Lose the session, and put a new one in its place."""
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
