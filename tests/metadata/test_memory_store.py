from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest
from rtolap.base.errors import CommitUnknown, Unavailable
from rtolap.metadata.store import Create, MetadataStore

from tests.support.cubes.metadata_contract import MetadataStoreContract, Sessions, eventually
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore


class MemorySessions(Sessions):
    def __init__(self) -> None:
        self.ensemble = MemoryEnsemble()
        self.opened: list[MemoryStore] = []

    def open(self) -> MemoryStore:
        self.opened.append(MemoryStore(self.ensemble))
        return self.opened[-1]

    def expire(self, store: MetadataStore) -> None:
        assert isinstance(store, MemoryStore)
        store.expire()


class TestMemoryStore(MetadataStoreContract):
    @pytest.fixture
    def sessions(self) -> Iterator[Sessions]:
        sessions = MemorySessions()
        yield sessions
        for store in sessions.opened:
            store.close()


@pytest.mark.parametrize(("when", "applied"), [("before", False), ("after", True)])
def test_a_broken_commit_is_unknown_either_way(when: Literal["before", "after"], applied: bool) -> None:
    ensemble = MemoryEnsemble()
    store = MemoryStore(ensemble)
    ensemble.fault = lambda _: when
    with pytest.raises(CommitUnknown):
        store.commit([Create("/a", b"")])
    assert (store.get("/a") is not None) is applied
    store.close()


def test_a_disconnected_leader_does_not_lead_until_it_is_back() -> None:
    store = MemoryStore(MemoryEnsemble())
    notified: list[bool] = []
    election = store.elect("/e", "one", lambda: notified.append(election.is_leader()))
    eventually(election.is_leader, "leads")
    store.disconnect()
    assert not election.is_leader()
    with pytest.raises(Unavailable):
        store.get("/e")
    eventually(lambda: notified == [True, False], "told of the break")
    store.reconnect()
    eventually(election.is_leader, "leads again")
    store.close()
