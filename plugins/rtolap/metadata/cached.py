"""A metadata store that reads a node once, and again only after it has changed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from rtolap.base.errors import RtolapError
from rtolap.metadata.forwarding import ForwardingStore
from rtolap.metadata.store import Check, MetadataStore, Operation, Versioned, Watch

T = TypeVar("T")


@dataclass
class _Entry(Generic[T]):
    """The last read of one path.

    Attributes:
        changes: how often the path was said to have changed.
        read_at: `changes` when `value` was read; None before the first read.
    """

    watch: Watch | None = None
    changes: int = 0
    read_at: int | None = None
    value: T | None = None


class CachedStore(ForwardingStore):
    """For work that repeats itself over nodes that seldom change. Thread-safe.

    A read may be as old as a watch takes to arrive, and is never older than a commit through this store.
    While the connection is broken, reads go to the store itself, which waits or raises. Nodes that do not
    exist are read each time, so that nothing remains of nodes that are gone.
    """

    def __init__(self, store: MetadataStore) -> None:
        super().__init__(store)
        self._lock = threading.Lock()
        self._nodes: dict[str, _Entry[Versioned]] = {}
        self._names: dict[str, _Entry[tuple[str, ...]]] = {}

    def get(self, path: str) -> Versioned | None:
        return self._read(self._nodes, path, super().get)

    def children(self, path: str) -> tuple[str, ...]:
        return self._read(self._names, path, super().children) or ()

    def commit(self, operations: Sequence[Operation]) -> None:
        try:
            super().commit(operations)
        except RtolapError:  # a requirement did not hold, or it is not known what became of it
            self._touched(operations)
            raise
        self._touched([operation for operation in operations if not isinstance(operation, Check)])

    def watch(self, path: str, changed: Callable[[], None]) -> Watch:
        """Watch as the seam says: who reads when it is called reads what has changed."""

        def noted() -> None:
            self._changed(path)
            changed()

        return super().watch(path, noted)

    def sync(self) -> None:
        """Have later reads be not older than the call: each path is read again."""
        super().sync()
        with self._lock:
            for entry in self._entries():
                entry.changes += 1

    def close(self) -> None:
        """Stop the watches, and close the store."""
        with self._lock:
            entries = self._entries()
            self._nodes.clear()
            self._names.clear()
        for entry in entries:
            if entry.watch is not None:
                entry.watch.stop()
        super().close()

    def _entries(self) -> list[_Entry[Any]]:
        return [*self._nodes.values(), *self._names.values()]

    def _read(self, entries: dict[str, _Entry[T]], path: str, read: Callable[[str], T | None]) -> T | None:
        if not self._store.connected():
            return read(path)
        with self._lock:
            entry = entries.get(path)
            if entry is not None and entry.read_at == entry.changes:
                return entry.value
        if entry is None:
            entry = self._follow(entries, path)
        with self._lock:
            changes = entry.changes
        value = read(path)
        with self._lock:
            if value:
                entry.value, entry.read_at = value, changes
            gone = None if value else entries.pop(path, None)
        if gone is not None and gone.watch is not None:
            gone.watch.stop()
        return value

    def _follow(self, entries: dict[str, _Entry[T]], path: str) -> _Entry[T]:
        """Watch the path before it is read, so that no change between the two is missed."""
        fresh: _Entry[T] = _Entry()
        watch = self._store.watch(path, partial(self._noted, fresh))
        with self._lock:
            entry = entries.setdefault(path, fresh)
            if entry is fresh:
                entry.watch = watch
                return entry
        watch.stop()  # another thread was first
        return entry

    def _touched(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            self._changed(operation.path)
            self._changed(operation.path.rpartition("/")[0])

    def _noted(self, entry: _Entry[T]) -> None:
        with self._lock:
            entry.changes += 1

    def _changed(self, path: str) -> None:
        with self._lock:
            for entry in (self._nodes.get(path), self._names.get(path)):
                if entry is not None:
                    entry.changes += 1
