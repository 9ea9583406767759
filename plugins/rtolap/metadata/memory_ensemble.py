"""The tree that the sessions of `memory.MemoryStore` share: what a ZooKeeper ensemble keeps, in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from rtolap.base.errors import CommitConflict
from rtolap.metadata.store import Check, Create, Delete, Operation, Put

Fault = Callable[[Sequence[Operation]], Literal["before", "after"] | None]


@dataclass
class _Node:
    data: bytes
    version: int
    owner: tuple[int, int] | None  # (store, session) of an ephemeral


class Session(Protocol):
    """A store on the ensemble, as far as the ensemble knows it."""

    def touched(self, paths: Sequence[str]) -> None:
        """Call the watches of these paths."""
        ...

    def settle(self, timeout_s: float) -> bool: ...


class MemoryEnsemble:
    """The shared tree. `fault` is called before every commit: break it "before" or "after" applying?"""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.nodes: dict[str, _Node] = {"": _Node(b"", 0, None)}
        self.sequence = 0
        self.stores: list[Session] = []
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
            self.nodes = changed
            self.notify_watchers(touched)

    def remove_owned(self, owner: tuple[int, int]) -> None:
        with self.lock:
            gone = [path for path, node in self.nodes.items() if node.owner == owner]
            for path in gone:
                del self.nodes[path]
            self.notify_watchers([*gone, *(path.rpartition("/")[0] for path in gone)])

    def notify_watchers(self, paths: Sequence[str]) -> None:
        for store in list(self.stores):
            store.touched(paths)


def _apply(nodes: dict[str, _Node], operation: Operation, owner: tuple[int, int]) -> list[str]:
    """Returns the paths whose watchers have to be called."""
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
        nodes[path] = _Node(operation.data, node.version + 1, node.owner)
        return [path]
    if isinstance(operation, Delete):
        if any(other.startswith(path + "/") for other in nodes):
            raise CommitConflict(f"{path} has children")
        del nodes[path]
        return [path, parent]
    return []
