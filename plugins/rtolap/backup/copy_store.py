"""A backup, read as a store is read: the typed operations of `rtolap.metadata` look into it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from rtolap.base.errors import Refused
from rtolap.metadata.store import Operation, Versioned


class CopyStore:
    """Implements `store.MetadataStore` for readers. Whatever would change or watch it is refused."""

    def __init__(self, records: Mapping[str, bytes]) -> None:
        self._records = records
        self._children: dict[str, set[str]] = defaultdict(set)
        for path in records:
            while path:
                parent, _, name = path.rpartition("/")
                self._children[parent].add(name)
                path = parent

    def get(self, path: str) -> Versioned | None:
        data = self._records.get(path)
        if data is not None:
            return Versioned(data, 0)
        return Versioned(b"", 0) if path in self._children else None

    def children(self, path: str) -> tuple[str, ...]:
        return tuple(sorted(self._children.get(path, ())))

    def commit(self, operations: Sequence[Operation]) -> None:
        _only_read()

    def watch(self, path: str, changed: Callable[[], None]) -> NoReturn:
        _only_read()

    def elect(self, path: str, identity: str, changed: Callable[[], None]) -> NoReturn:
        _only_read()

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        _only_read()

    def sync(self) -> None:
        """Do nothing: it never changes."""

    def connected(self) -> bool:
        return True

    def close(self) -> None:
        """Do nothing: it holds nothing open."""


def _only_read() -> NoReturn:
    raise Refused("a backup is only read", action="restore it into ZooKeeper first")
