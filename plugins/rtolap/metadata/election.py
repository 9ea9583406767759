"""Leader election by ephemeral sequential nodes, the same for every store.

Each candidate makes `<path>/<random token>-<sequence>`; the lowest sequence leads. The random token lets a
candidate find its node again when the connection broke while it was being made. A candidate whose session
was lost enrols again with a new token.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable
from typing import Protocol

from rtolap.base.errors import CommitConflict
from rtolap.metadata.dispatch import Dispatcher
from rtolap.metadata.store import Delete, MetadataStore, Operation, Versioned, Watch
from rtolap.metadata.updates import read_each


class SessionStore(Protocol):
    """The needs of a candidacy from its store, besides the public seam."""

    def get(self, path: str) -> Versioned | None: ...

    def children(self, path: str) -> tuple[str, ...]: ...

    def commit(self, operations: list[Operation]) -> None: ...

    def watch(self, path: str, changed: Callable[[], None]) -> Watch: ...

    def connected(self) -> bool: ...

    def session_number(self) -> int:
        """Return a number that grows by one with every lost session."""
        ...

    def create_sequential(self, prefix: str, data: bytes) -> None:
        """Make an ephemeral node named `prefix` and a ten-digit sequence number."""
        ...


def in_order(names: Iterable[str]) -> list[str]:
    """Return names of candidates' nodes, leader first."""
    return sorted(names, key=lambda name: name.rpartition("-")[2])


def identities(store: MetadataStore, path: str) -> tuple[str, ...]:
    """Return the candidates of the election at `path`, leader first, without those that are forged."""
    nodes = read_each(in_order(store.children(path)), lambda name: store.get(f"{path}/{name}")).found
    return tuple(node.data.decode() for node in nodes.values())


class Candidacy:
    """Implements `store.Election`."""

    def __init__(
        self,
        store: SessionStore,
        dispatcher: Dispatcher,
        path: str,
        identity: str,
        changed: Callable[[], None],
    ) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._path = path
        self._identity = identity
        self._changed = changed
        self._lock = threading.Lock()
        self._token = ""
        self._session = -1
        self._first = ""
        self._own = ""
        self._leader: str | None = None
        self._announced: tuple[bool, str | None] = (False, None)
        self._closed = False
        self._watch = store.watch(path, self.wake)
        self.wake()

    def is_leader(self) -> bool:
        with self._lock:
            return (
                not self._closed
                and bool(self._token)
                and self._first.startswith(self._token)
                and self._session == self._store.session_number()
                and self._store.connected()
            )

    def fence(self) -> str | None:
        return f"{self._path}/{self._first}" if self.is_leader() else None

    def node(self) -> str | None:
        with self._lock:
            enrolled = (
                not self._closed
                and bool(self._own)
                and self._session == self._store.session_number()
                and self._store.connected()
            )
            return f"{self._path}/{self._own}" if enrolled else None

    def term(self) -> int | None:
        fence = self.fence()
        return None if fence is None else int(fence.rpartition("-")[2])

    def leader(self) -> str | None:
        with self._lock:
            return self._leader

    def step_back(self) -> bool:
        with self._lock:
            token = self._token
        if not token or all(name.startswith(token) for name in self._store.children(self._path)):
            return False
        self._withdraw(token)  # what is fenced by the node is refused from here on
        with self._lock:
            if self._first.startswith(token):
                self._first = ""
            self._own = ""
        self.wake()  # enrols again
        return True

    def close(self) -> None:
        with self._lock:
            self._closed = True
            token = self._token
        self._watch.stop()
        if token and self._store.connected():
            self._withdraw(token)

    def wake(self) -> None:
        self._dispatcher.wake(self._evaluate)

    def _withdraw(self, token: str) -> None:
        for name in self._store.children(self._path):
            if name.startswith(token):
                try:
                    self._store.commit([Delete(f"{self._path}/{name}")])
                except CommitConflict:
                    continue  # gone with its session already

    def _evaluate(self) -> None:
        """Enrol if need be, see who leads, and announce a change once. It runs on the dispatcher."""
        if self._closed:
            return
        if self._store.connected():
            self._refresh()
        now = (self.is_leader(), self.leader())
        if now != self._announced:
            self._announced = now
            self._changed()

    def _refresh(self) -> None:
        session = self._store.session_number()
        if session != self._session:
            with self._lock:
                self._session, self._token = session, uuid.uuid4().hex
                self._first = self._own = ""
        names = in_order(self._store.children(self._path))
        if not any(name.startswith(self._token) for name in names):
            self._store.create_sequential(f"{self._path}/{self._token}-", self._identity.encode())
            names = in_order(self._store.children(self._path))
        first = self._store.get(f"{self._path}/{names[0]}") if names else None
        with self._lock:
            self._first = names[0] if names else ""
            self._own = next((name for name in names if name.startswith(self._token)), "")
            self._leader = first.data.decode() if first is not None else None
        if self._closed:
            self._withdraw(self._token)  # closed while this was enrolling
        elif first is None:
            self.wake()  # the first one left between the two reads
