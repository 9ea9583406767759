"""A ledger, real storage nodes in this process, and a table of which each of them has the one tablet."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from rtolap.base.closeable import Closeable
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.protocols.storage.messages import Heartbeat, ScanRequest, TabletId
from rtolap.stored.frontend.catalogue.tables import Catalogue
from rtolap.stored.frontend.election import Mastership
from rtolap.stored.frontend.storage_nodes import StorageNodes
from rtolap.stored.frontend.transactions.publishing import Publisher
from rtolap.stored.frontend.transactions.rebuilding import Rebuilding
from rtolap.stored.frontend.transactions.remote_participants import RemoteParticipants, RemoteTabletHosts
from rtolap.stored.frontend.transactions.requests import TransactionManager
from rtolap.stored.metastore.leases import Leases
from rtolap.stored.metastore.records import BeginRequest, Partition, Tablet, Transaction
from rtolap.stored.stream_load.writer import LoadWriter

from tests.support.stored.ledgers import open_ledger
from tests.support.stored.stopped_nodes import StoppableNodes
from tests.support.stored.storage_nodes import InProcessNodes

NAMES = ("a", "b", "c")
PEOPLE = StoredTable(
    database="shop", name="people", columns=(StoredColumn("id", "int"),), keys=("id",), model="unique"
)
TABLET = Tablet(Partition("shop", "people", "all", 1), 0)


class ReplicatedTable(Closeable):
    """Everything is called by the test itself: nothing runs by its own. `participants` may be replaced in
    parts, to have something happen at a call."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.nodes = InProcessNodes(folder, NAMES)
        self.living: tuple[str, ...] = NAMES
        self.ledger = open_ledger(folder / "ledger.db")
        self.stoppable = StoppableNodes(self.nodes)
        self.known = StorageNodes(self.ledger, self.stoppable)
        for name in NAMES:
            self.known.heartbeat(name, Heartbeat(f"id-{name}", name, 1 << 30))
        self.mastership = mastership = Mastership(Leases(self.ledger), "here", lease_ms=600_000)
        assert mastership.acquire()
        self.hosts = RemoteTabletHosts(self.known)
        self.catalogue = Catalogue(
            self.ledger,
            mastership,
            self.hosts,
            lambda connection: self.living,
            lately=self.known.lately,
            replication=len(NAMES),
        )
        self.participants = RemoteParticipants(self.ledger, self.known)
        self.manager = TransactionManager(self.ledger, mastership, self.participants)
        self.publisher = Publisher(self.ledger, mastership, self.participants)
        self.rebuilding = Rebuilding(self.ledger, self.participants, self.known.alive)
        self.versions = self.participants.versions
        self.catalogue.create_table(PEOPLE)

    def begin(
        self, *ids: int, name: str = "people", two_phase: bool = False
    ) -> tuple[Transaction, LoadWriter]:
        """Begin a transaction, and return it with a writer that has taken these rows."""
        table = self.catalogue.table("shop", name)
        label = f"{name}-" + "-".join(map(str, ids))
        transaction = self.manager.begin(BeginRequest("shop", (name,), label, label, 60_000, two_phase))
        txn_id = transaction.txn_id
        writer = LoadWriter(self.known, txn_id, table.table_id, table.schema, table.replicas)
        writer.write("all", 0, pa.record_batch({"id": pa.array(ids, pa.int32())}))
        return transaction, writer

    def commit(self, *ids: int, name: str = "people") -> Transaction:
        transaction, writer = self.begin(*ids, name=name)
        return self.manager.commit("shop", transaction.txn_id, writer.finish())

    def load(self, *ids: int) -> None:
        txn_id = self.commit(*ids).txn_id
        assert self.publisher.publish_committed() == (txn_id,)

    def damage(self, name: str) -> None:
        """Damage one byte of the rows, while the node is down."""
        self.nodes.stop(name)
        for file in (self._folder / name / "tablets").rglob("*.rows"):
            data = bytearray(file.read_bytes())
            data[len(data) // 2] ^= 1
            file.write_bytes(data)
        self.nodes.start(name)

    def ids(self, name: str, version: int) -> list[int]:
        table = self.catalogue.table("shop", "people")
        tablet = TabletId(table.table_id, "shop", "people", "all", 0, 1)
        stream = self.nodes.at(name).scan(ScanRequest(tablet, table.schema, version, ("id",)))
        return [value for batch in stream for value in batch.column("id").to_pylist()]

    def close(self) -> None:
        self.known.close()
        self.nodes.close()
        self.ledger.close()
