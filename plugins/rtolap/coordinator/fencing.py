"""Cluster state as a leader may change it: every commit requires that it still leads.

A process that was stopped for longer than its session believes for a moment that it leads. What it sends then
is refused by ZooKeeper, as one with the rest of the commit, because its candidate's node is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rtolap.base.errors import CommitConflict, NotLeader
from rtolap.metadata.store import Check, Election, MetadataStore, Operation, Versioned, Watch


class FencedStore:
    """A `MetadataStore` over another one's session. `fence` as `store.Election.fence` gives it."""

    def __init__(self, store: MetadataStore, fence: Callable[[], str | None]) -> None:
        self._store = store
        self._fence = fence

    def commit(self, operations: Sequence[Operation]) -> None:
        """As the seam says, and NotLeader, with nothing changed, where another candidate leads."""
        fence = self._fence()
        if fence is None:
            raise NotLeader("this coordinator leads no more; ask the leader")
        try:
            self._store.commit([*operations, Check(fence, -1)])
        except CommitConflict as error:
            if self._store.get(fence) is None:
                raise NotLeader("this coordinator's session is over; ask the leader") from error
            raise

    def get(self, path: str) -> Versioned | None:
        return self._store.get(path)

    def children(self, path: str) -> tuple[str, ...]:
        return self._store.children(path)

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
        """The session is its opener's."""
