"""A store that reads a node again only after it changed equals one that always reads, once watches arrive."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from rtolap.base.errors import CommitConflict, Unavailable
from rtolap.metadata.cached import CachedStore
from rtolap.metadata.forwarding import ForwardingStore
from rtolap.metadata.store import Create, Delete, MetadataStore, Operation, Put, Versioned

from tests.support.cubes.metadata_contract import MetadataStoreContract, Sessions
from tests.support.seeds import so_many
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore


class Counting(ForwardingStore):
    """Counts what is read of each path."""

    def __init__(self, store: MetadataStore) -> None:
        super().__init__(store)
        self.reads: Counter[str] = Counter()

    def get(self, path: str) -> Versioned | None:
        self.reads[path] += 1
        return super().get(path)

    def children(self, path: str) -> tuple[str, ...]:
        self.reads[path] += 1
        return super().children(path)


class CachedSessions(Sessions):
    def __init__(self) -> None:
        self.ensemble = MemoryEnsemble()
        self.opened: list[MemoryStore] = []

    def open(self) -> MetadataStore:
        self.opened.append(MemoryStore(self.ensemble))
        return CachedStore(self.opened[-1])

    def expire(self, store: MetadataStore) -> None:
        assert isinstance(store, CachedStore)
        session = store._store
        assert isinstance(session, MemoryStore)
        session.expire()


class TestCachedStore(MetadataStoreContract):
    @pytest.fixture
    def sessions(self) -> Iterator[Sessions]:
        sessions = CachedSessions()
        yield sessions
        for store in sessions.opened:
            store.close()


@pytest.fixture
def session() -> Iterator[MemoryStore]:
    store = MemoryStore(MemoryEnsemble())
    yield store
    store.close()


def test_what_does_not_change_is_read_once(session: MemoryStore) -> None:
    session.commit([Create("/a/b", b"1")])
    counting = Counting(session)
    store = CachedStore(counting)
    for _ in range(5):
        node = store.get("/a/b")
        assert node is not None
        assert node.data == b"1"
        assert store.children("/a") == ("b",)
    assert counting.reads == {"/a/b": 1, "/a": 1}


def test_a_change_by_another_session_is_read_once_it_is_known(session: MemoryStore) -> None:
    session.commit([Create("/a", b"1")])
    store = CachedStore(session)
    store.get("/a")
    other = MemoryStore(session.ensemble)
    other.commit([Put("/a", b"2", 0)])
    assert session.ensemble.settle()
    assert store.get("/a") == Versioned(b"2", 1)
    other.commit([Delete("/a")])
    assert session.ensemble.settle()
    assert store.get("/a") is None
    other.close()


def test_ones_own_commit_is_seen_at_once_and_so_is_what_made_it_fail(session: MemoryStore) -> None:
    """No watch is waited for: a reader that tries again after a conflict gets further."""
    session.commit([Create("/a", b"1")])
    store = CachedStore(session)
    store.get("/a")
    session.ensemble.notify_watchers = lambda paths: None  # type: ignore[method-assign] # watches are late
    store.commit([Put("/a", b"2", 0)])
    assert store.get("/a") == Versioned(b"2", 1)
    other = MemoryStore(session.ensemble)
    other.commit([Put("/a", b"3", 1)])
    with pytest.raises(CommitConflict):
        store.commit([Put("/a", b"4", 1)])
    assert store.get("/a") == Versioned(b"3", 2)
    other.close()


def test_while_the_connection_is_broken_nothing_is_answered_from_memory(session: MemoryStore) -> None:
    session.commit([Create("/a", b"1")])
    store = CachedStore(session)
    store.get("/a")
    session.disconnect()
    with pytest.raises(Unavailable):
        store.get("/a")
    session.reconnect()
    assert store.get("/a") == Versioned(b"1", 0)


def test_nothing_is_kept_of_nodes_that_are_gone_and_no_watch_of_a_store_that_is_closed(
    session: MemoryStore,
) -> None:
    store = CachedStore(session)
    for number in range(20):
        store.commit([Create(f"/all/{number}", b"")])
        store.get(f"/all/{number}")
        store.children("/all")
        store.commit([Delete(f"/all/{number}")])
        assert store.get(f"/all/{number}") is None
    assert len(session._watches) <= 1
    store.children("/all")
    store.close()
    assert session._watches == []


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(20)))
def test_whatever_sessions_do_a_cached_store_reads_what_there_is(seed: int) -> None:
    draw = random.Random(seed)
    ensemble = MemoryEnsemble()
    sessions = [MemoryStore(ensemble) for _ in range(3)]
    stores: list[MetadataStore] = [CachedStore(sessions[0]), CachedStore(sessions[1]), sessions[2]]
    paths = [f"/p{parent}/c{child}" for parent in range(3) for child in range(3)]
    for number in range(200):
        store, path = draw.choice(stores), draw.choice(paths)
        operation: Operation = draw.choice(
            [Create(path, b"%d" % number), Put(path, b"%d" % number, -1), Delete(path)]
        )
        try:
            store.commit([operation])
        except CommitConflict:
            """It exists, or it does not."""
        assert store.get(path) == sessions[2].get(path), "a commit of one's own is seen at once"
        if draw.random() < 0.3:
            assert ensemble.settle()
            for each in stores[:2]:
                for path in paths:
                    assert each.get(path) == sessions[2].get(path)
                    parent = path.rpartition("/")[0]
                    assert each.children(parent) == sessions[2].children(parent)
    for session in sessions:
        session.close()
