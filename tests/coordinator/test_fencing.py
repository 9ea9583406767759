from __future__ import annotations

from collections.abc import Iterator

import pytest
from rtolap.base.errors import CommitConflict, NotLeader
from rtolap.coordinator.leadership import FencedStore
from rtolap.metadata.store import Create, Put

from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

ELECTION = "/election"


@pytest.fixture
def ensemble() -> MemoryEnsemble:
    return MemoryEnsemble()


@pytest.fixture
def former(ensemble: MemoryEnsemble) -> Iterator[MemoryStore]:
    """The session of a leader."""
    store = MemoryStore(ensemble)
    yield store
    store.close()


def test_who_leads_writes_and_conflicts_stay_conflicts(ensemble: MemoryEnsemble, former: MemoryStore) -> None:
    election = former.elect(ELECTION, "a", lambda: None)
    assert ensemble.settle()
    fenced = FencedStore(former, election.fence)
    fenced.commit([Create("/x", b"1")])
    assert fenced.get("/x") == former.get("/x")
    with pytest.raises(CommitConflict):
        fenced.commit([Put("/x", b"2", 7)])


def test_who_stands_behind_writes_nothing(ensemble: MemoryEnsemble, former: MemoryStore) -> None:
    former.elect(ELECTION, "a", lambda: None)
    assert ensemble.settle()
    second = MemoryStore(ensemble)
    election = second.elect(ELECTION, "b", lambda: None)
    assert ensemble.settle()
    with pytest.raises(NotLeader):
        FencedStore(second, election.fence).commit([Create("/x", b"1")])
    assert former.get("/x") is None
    second.close()


def test_who_does_not_know_yet_that_its_session_is_over_writes_nothing(
    ensemble: MemoryEnsemble, former: MemoryStore
) -> None:
    election = former.elect(ELECTION, "a", lambda: None)
    assert ensemble.settle()
    believed = election.fence()
    fenced = FencedStore(former, lambda: believed)
    election.close()  # as the ensemble does when it ends a session
    with pytest.raises(NotLeader):
        fenced.commit([Create("/x", b"1")])
    assert former.get("/x") is None
