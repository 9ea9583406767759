"""Damaged tablets of real nodes are made whole from other replicas, while nothing is loaded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from rtolap.base.errors import Unavailable
from rtolap.ledger.database import Ledger
from rtolap.ledger.leases import Leases
from rtolap.ledger.records import Partition, Tablet
from rtolap.model.stored_table import StoredColumn, StoredTable
from rtolap.streamload.catalogue import Catalogue
from rtolap.streamload.load_writer import LoadWriter
from rtolap.streamload.mastership import Mastership
from rtolap.streamload.publishing import Publisher
from rtolap.streamload.rebuilding import Rebuilding
from rtolap.streamload.remote_participants import RemoteParticipants, RemoteTabletHosts
from rtolap.streamload.storage_nodes import StorageNodes
from rtolap.streamload.transactions import TransactionManager
from rtolap.testing.storage_nodes import InProcessNodes
from rtolap.wire.storage import Heartbeat, ScanRequest, TabletId

NAMES = ("a", "b", "c")
PEOPLE = StoredTable(
    database="shop", name="people", columns=(StoredColumn("id", "int"),), keys=("id",), model="unique"
)
TABLET = Tablet(Partition("shop", "people", "all"), 0)


class World:
    """Three nodes that each have the table's one tablet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.nodes = InProcessNodes(folder, NAMES)
        self.ledger = Ledger.open(f"sqlite:///{folder / 'ledger.db'}")
        known = StorageNodes(self.ledger, self.nodes)
        for name in NAMES:
            known.heartbeat(name, Heartbeat(f"id-{name}", name, 1 << 30))
        mastership = Mastership(Leases(self.ledger), "here", lease_ms=600_000)
        assert mastership.take()
        self.catalogue = Catalogue(
            self.ledger, mastership, RemoteTabletHosts(known), known.alive, replication=len(NAMES)
        )
        participants = RemoteParticipants(self.ledger, known)
        self._manager = TransactionManager(self.ledger, mastership, participants)
        self._publisher = Publisher(self.ledger, mastership, participants)
        self.rebuilding = Rebuilding(self.ledger, participants, known.alive)
        self.versions = participants.versions
        self.catalogue.create_table(PEOPLE)

    def load(self, *ids: int) -> None:
        table = self.catalogue.table("shop", "people")
        label = "load-" + "-".join(map(str, ids))
        txn_id = self._manager.begin("shop", ["people"], label, label, timeout_ms=60_000).txn_id
        writer = LoadWriter(self.nodes, txn_id, table.table_id, table.schema, table.replicas)
        writer.write("all", 0, pa.record_batch({"id": pa.array(ids, pa.int32())}))
        self._manager.commit("shop", txn_id, writer.finish())
        assert self._publisher.publish_committed() == (txn_id,)

    def damage(self, name: str) -> None:
        """One byte of the rows, while the node is down."""
        self.nodes.stop(name)
        for file in (self._folder / name / "tablets").rglob("*.rows"):
            data = bytearray(file.read_bytes())
            data[len(data) // 2] ^= 1
            file.write_bytes(data)
        self.nodes.start(name)

    def ids(self, name: str, version: int) -> list[int]:
        table = self.catalogue.table("shop", "people")
        tablet = TabletId(table.table_id, "shop", "people", "all", 0)
        stream = self.nodes.at(name).scan(ScanRequest(tablet, table.schema, version, ("id",)))
        return [value for batch in stream for value in batch.column("id").to_pylist()]

    def close(self) -> None:
        self.nodes.close()
        self.ledger.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def test_a_damaged_tablet_is_made_whole_without_a_load(world: World, tmp_path: Path) -> None:
    world.load(1, 2)
    world.load(2, 3)
    world.damage("b")
    assert (world.versions("a"), world.versions("b")) == ({TABLET: 2}, {})
    with pytest.raises(Unavailable, match="cannot be opened here"):
        world.ids("b", 2)
    assert world.rebuilding.round() == 1
    assert world.ids("b", 2) == [1, 2, 3]
    assert world.versions("b") == {TABLET: 2}
    assert [path.name for path in (tmp_path / "b" / "broken").iterdir()], "its bytes are kept"
    assert world.rebuilding.round() == 0
    world.load(4)
    assert world.ids("b", 3) == [1, 2, 3, 4]


def test_without_a_healthy_replica_nothing_is_touched_until_there_is_one(world: World) -> None:
    """The bytes of a damaged tablet may be all that there is."""
    world.load(1, 2)
    world.damage("a")
    world.damage("b")
    world.nodes.stop("c")
    assert world.rebuilding.round() == 0
    assert world.versions("a") == world.versions("b") == {}
    assert world.nodes.at("a").status().broken, "it was not made anew"
    world.nodes.start("c")
    assert world.rebuilding.round() == 2
    assert world.ids("a", 1) == world.ids("b", 1) == world.ids("c", 1) == [1, 2]


def test_a_tablet_whose_files_are_gone_comes_back(world: World, tmp_path: Path) -> None:
    world.load(1)
    world.load(2)
    world.nodes.stop("c")
    shutil.rmtree(tmp_path / "c" / "tablets")
    world.nodes.start("c")
    assert world.rebuilding.round() == 1
    assert world.ids("c", 2) == [1, 2]


def test_a_tablet_of_a_dropped_table_is_left_alone(world: World) -> None:
    world.load(1)
    world.nodes.stop("b")
    world.catalogue.drop_table("shop", "people")
    world.catalogue.create_table(PEOPLE)  # another one of the name
    world.nodes.start("b")
    assert world.versions("b") == {}
    assert world.rebuilding.round() == 0
