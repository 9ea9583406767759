"""A metadata store over another one: the base of those that change some calls and hand on the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rtolap.metadata.store import Election, MetadataStore, Operation, Versioned, Watch


class ForwardingStore:
    """Implements `store.MetadataStore`. Each call goes to the other store as it is."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    def get(self, path: str) -> Versioned | None:
        return self._store.get(path)

    def children(self, path: str) -> tuple[str, ...]:
        return self._store.children(path)

    def commit(self, operations: Sequence[Operation]) -> None:
        self._store.commit(operations)

    def watch(self, path: str, changed: Callable[[], None]) -> Watch:
        return self._store.watch(path, changed)

    def elect(self, path: str, identity: str, changed: Callable[[], None]) -> Election:
        return self._store.elect(path, identity, changed)

    def on_session_lost(self, callback: Callable[[], None]) -> None:
        self._store.on_session_lost(callback)

    def sync(self) -> None:
        self._store.sync()

    def connected(self) -> bool:
        return self._store.connected()

    def close(self) -> None:
        self._store.close()
