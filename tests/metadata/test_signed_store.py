"""Records with the cluster's signature: the store's whole contract, and what somebody else writes."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import pytest
from rtolap.base.clock import SystemClock
from rtolap.base.errors import CommitConflict, Forged
from rtolap.base.metrics import Metrics
from rtolap.metadata import paths
from rtolap.metadata.cluster_store import show_refused
from rtolap.metadata.cubes import ClusterMetadata
from rtolap.metadata.records import ReceiverRecord
from rtolap.metadata.signed import SignedStore
from rtolap.metadata.store import SIGNATURE_MARK, Create, Delete, MetadataStore, Put

from tests.support.cubes.metadata_contract import MetadataStoreContract, Sessions, eventually
from tests.support.seeds import so_many
from tests.support.twins.metadata import MemoryEnsemble, MemoryStore

TOKEN = "a-token-of-this-test"


class SignedSessions(Sessions):
    def __init__(self) -> None:
        self.ensemble = MemoryEnsemble()
        self._inner: dict[int, MemoryStore] = {}

    def open(self) -> SignedStore:
        inner = MemoryStore(self.ensemble)
        store = SignedStore(inner, TOKEN)
        self._inner[id(store)] = inner
        return store

    def expire(self, store: MetadataStore) -> None:
        self._inner[id(store)].expire()


class TestSignedStore(MetadataStoreContract):
    @pytest.fixture
    def sessions(self) -> Sessions:
        return SignedSessions()


class Neighbour:
    """Writes to the same ensemble and has no token."""

    def __init__(self) -> None:
        self.ensemble = MemoryEnsemble()
        self.store = SignedStore(MemoryStore(self.ensemble), TOKEN)
        self.raw = MemoryStore(self.ensemble)

    def alter(self, path: str, data: bytes) -> None:
        node = self.raw.get(path)
        self.raw.commit([Create(path, data) if node is None else Put(path, data, node.version)])


@pytest.fixture
def neighbour() -> Iterator[Neighbour]:
    one = Neighbour()
    yield one
    one.store.close()
    one.raw.close()


def test_nothing_that_is_written_holds_the_token(neighbour: Neighbour) -> None:
    neighbour.store.commit([Create("/a", b"record")])
    stored = neighbour.raw.get("/a")
    assert stored is not None
    assert stored.data.startswith(b"record" + SIGNATURE_MARK)
    assert TOKEN.encode() not in stored.data


@pytest.mark.parametrize(
    "altered",
    [
        b"other",
        b"record",
        b"other" + SIGNATURE_MARK + b"00" * 32,
        b"record" + SIGNATURE_MARK,
        b"record" + SIGNATURE_MARK + b"no hexadecimal",
    ],
)
def test_a_record_of_somebody_else_is_refused_by_its_path(neighbour: Neighbour, altered: bytes) -> None:
    neighbour.store.commit([Create("/a", b"record")])
    neighbour.alter("/a", altered)
    with pytest.raises(Forged, match="/a") as caught:
        neighbour.store.get("/a")
    assert TOKEN not in str(caught.value)
    assert neighbour.store.refused_records == 1


def test_a_genuine_record_counts_in_its_own_place_and_time_only(neighbour: Neighbour) -> None:
    neighbour.store.commit([Create("/a", b"first"), Create("/b", b"of b")])
    first, of_b = neighbour.raw.get("/a"), neighbour.raw.get("/b")
    assert first is not None
    assert of_b is not None
    neighbour.store.commit([Put("/a", b"second", 0)])
    neighbour.alter("/a", first.data)
    with pytest.raises(Forged):
        neighbour.store.get("/a")
    neighbour.alter("/c", of_b.data)
    with pytest.raises(Forged):
        neighbour.store.get("/c")


def test_a_forged_record_can_be_written_anew_and_is_not_taken_for_a_conflict(neighbour: Neighbour) -> None:
    metadata = ClusterMetadata(neighbour.store, SystemClock())
    metadata.register_receiver(ReceiverRecord("r1", "127.0.0.1", 1, "left"))
    neighbour.alter(paths.receiver("r1"), b'{"receiver_id":"r1","host":"evil","port":1,"replica_set":"left"}')
    assert metadata.receivers() == {}
    metadata.register_receiver(ReceiverRecord("r1", "127.0.0.1", 2, "left"))
    assert metadata.receivers()["r1"].port == 2
    with pytest.raises(CommitConflict):
        neighbour.store.commit([Put(paths.receiver("r1"), b"x", 0)])


def test_announcements_of_others_are_left_out_counted_and_named(
    neighbour: Neighbour, caplog: pytest.LogCaptureFixture
) -> None:
    metadata = ClusterMetadata(neighbour.store, SystemClock())
    metadata.register_receiver(ReceiverRecord("genuine", "127.0.0.1", 1, "left"))
    neighbour.alter(
        paths.receiver("made-up"), b'{"receiver_id":"x","host":"evil","port":1,"replica_set":"left"}'
    )
    for _ in range(3):
        assert set(metadata.receivers()) == {"genuine"}
    metrics = Metrics("receiver")
    show_refused(metrics, neighbour.store)
    assert b"rtolap_receiver_metadata_records_refused_total 3.0" in metrics.render()[0]
    said = [record.message for record in caplog.records if "/receivers/made-up" in record.message]
    assert len(said) == 1
    assert "evil" not in said[0]
    assert TOKEN not in said[0]


def test_a_candidate_without_the_token_is_no_coordinator(neighbour: Neighbour) -> None:
    woken = threading.Event()
    first = neighbour.raw.elect(paths.ELECTION, "http://evil:1", woken.set)
    eventually(first.is_leader, "the stranger leads")
    metadata = ClusterMetadata(neighbour.store, SystemClock())
    assert metadata.coordinators() == ()
    genuine = neighbour.store.elect(paths.ELECTION, "http://127.0.0.1:7070", woken.set)
    eventually(lambda: metadata.coordinators() == ("http://127.0.0.1:7070",), "it stands")
    assert genuine.leader() is None, "whoever leads, it is nobody of this cluster"
    first.close()
    eventually(genuine.is_leader, "it leads")
    assert genuine.leader() == "http://127.0.0.1:7070"
    genuine.close()


@pytest.mark.parametrize("seed", range(so_many(10)))
def test_no_alteration_of_a_record_is_read(seed: int) -> None:
    random_ = random.Random(seed)
    one = Neighbour()
    for number in range(30):
        path, record = f"/n{number}", random_.randbytes(random_.randrange(1, 60))
        one.store.commit([Create(path, record)])
        node = one.raw.get(path)
        assert node is not None
        altered = bytearray(node.data)
        for _ in range(random_.randint(1, 3)):
            at = random_.randrange(len(altered))
            match random_.randrange(3):
                case 0:
                    altered[at] ^= 1 << random_.randrange(8)
                case 1:
                    del altered[at]
                case _:
                    altered.insert(at, random_.randrange(256))
        if random_.random() < 0.5:
            one.raw.commit([Put(path, bytes(altered), node.version)])
        else:
            one.raw.commit([Delete(path, node.version)])
            one.raw.commit([Create(path, bytes(altered))])
        try:
            read = one.store.get(path)
        except Forged:
            continue
        assert read is not None
        assert read.data == record, "capitals of the same digits at most"
    one.store.close()
    one.raw.close()
