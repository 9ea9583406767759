from __future__ import annotations

import random

import pytest
from rtolap.backup.cluster_copy import all_paths, copy_cluster, live_sessions
from rtolap.base.errors import Forged, NotYet
from rtolap.metadata.forwarding import ForwardingStore
from rtolap.metadata.signed import SignedStore
from rtolap.metadata.store import Create, Delete, Put, Versioned

from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

PLACES = tuple(f"/cubes/c/{folder}/s{number}" for folder in ("segments", "history") for number in range(5))


class MovingStore(ForwardingStore):
    """A store in which one record moves between places while others read, `moves` times."""

    def __init__(self, store: MemoryStore, seed: int, moves: int) -> None:
        super().__init__(store)
        self._random, self._left, self.at = random.Random(seed), moves, PLACES[0]
        store.commit([Create(path, b"x") for path in ("/a", "/cubes/c/control", "/z/y", self.at)])

    def get(self, path: str) -> Versioned | None:
        node = super().get(path)
        if self._left and self._random.random() < 0.3:
            self._left -= 1
            place = self._random.choice([each for each in PLACES if each != self.at])
            self.commit([Delete(self.at), Create(place, b"x")])
            self.at = place
        return node


@pytest.mark.parametrize("seed", range(40))
def test_a_record_that_moves_while_it_is_read_is_in_exactly_one_place(seed: int) -> None:
    store = MovingStore(MemoryStore(MemoryEnsemble()), seed, moves=seed)
    copied = copy_cluster(store, passes_max=200)
    assert set(copied.records) >= {"/a", "/cubes/c/control", "/z/y"}
    assert len(set(copied.records) & set(PLACES)) == 1


def test_records_that_never_stand_still_are_no_backup() -> None:
    store = MovingStore(MemoryStore(MemoryEnsemble()), 1, moves=10_000)
    with pytest.raises(NotYet, match=r"found /cubes/c/(segments|history)"):
        copy_cluster(store, passes_max=5)


def test_watermarks_that_are_written_all_the_time_are_in_no_backups_way() -> None:
    inner = MemoryStore(MemoryEnsemble())
    growing = "/cubes/c/watermark"
    inner.commit([Create(growing, b"0"), Create("/cubes/c/control", b"x")])

    class Growing(ForwardingStore):
        def get(self, path: str) -> Versioned | None:
            node = self._store.get(growing)
            assert node is not None
            self._store.commit([Put(growing, b"%d" % (int(node.data) + 1), node.version)])
            return super().get(path)

    copied = copy_cluster(Growing(inner))
    assert copied.passes == 2
    assert int(copied.records[growing]) > 0


def test_what_goes_with_a_session_is_not_copied() -> None:
    store = MemoryStore(MemoryEnsemble())
    store.commit([Create("/kept", b"1"), Create("/live/r1", b"2", ephemeral=True), Create("/empty", b"")])
    assert copy_cluster(store).records == {"/kept": b"1"}
    assert live_sessions(store) == ["/live/r1"]
    assert set(all_paths(store)) == {"/kept", "/live", "/live/r1", "/empty"}
    assert all_paths(store).index("/live/r1") < all_paths(store).index("/live")


def test_a_forged_record_is_in_no_backup() -> None:
    ensemble = MemoryEnsemble()
    signed = SignedStore(MemoryStore(ensemble), "a token")
    signed.commit([Create("/mine", b"1"), Create("/live/r1", b"2", ephemeral=True)])
    assert copy_cluster(signed).records == {"/mine": b"1"}
    assert live_sessions(signed) == ["/live/r1"]
    MemoryStore(ensemble).commit([Create("/other", b"1")])
    with pytest.raises(Forged, match="/other"):
        copy_cluster(signed)
