"""Stored tables in this process: the real catalogue on a ledger, real tablets in folders, no sockets.

`source` is a `StoredSource` for a query service. Loads go straight to the tablets and become visible in the
ledger at once.
"""

from __future__ import annotations

import functools
import tempfile
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from rtolap.base.closeable import Closeable
from rtolap.base.errors import NotFound, Unavailable
from rtolap.columnar.pushed_schema import rows_schema
from rtolap.model.stored.schema import StoredSchema
from rtolap.model.stored.table import StoredTable
from rtolap.protocols.storage.messages import Pin, ScanRequest, TabletId, Unpin
from rtolap.protocols.stored_tables import messages as wire
from rtolap.stored.engine.routing import Routing
from rtolap.stored.engine.rows.columns import DELETE_SIGN
from rtolap.stored.engine.settings import TabletSettings
from rtolap.stored.engine.tablet import Tablet
from rtolap.stored.frontend.catalogue.read_views import ReadViews
from rtolap.stored.frontend.catalogue.tables import Catalogue
from rtolap.stored.frontend.election import Mastership
from rtolap.stored.metastore import partitions as partition_rows
from rtolap.stored.metastore.database import Connection
from rtolap.stored.metastore.leases import Leases
from rtolap.stored.metastore.records import Partition
from rtolap.stored.node.pins import Pins
from rtolap.stored.node.scans import ScanStream

from tests.support.in_memory import IN_MEMORY
from tests.support.stored.ledgers import open_ledger
from tests.support.twins.clock import ManualClock

NODES = ("n1", "n2", "n3")
NOW_MS = 1_700_000_000_000  # 2023-11-14 22:13:20
_FOR_EVER_MS = 1 << 40


class LocalNodes:
    """A `TabletHosts` over tablets in folders. `away`: nodes that do not answer."""

    def __init__(self, folder: Path, settings: TabletSettings | None = None) -> None:
        self.settings = settings
        self.tablets: dict[tuple[str, TabletId], Tablet] = {}
        self.away: set[str] = set()
        self.pins = {node: Pins(functools.partial(self.tablet, node)) for node in NODES}
        self._folder = folder

    def create(
        self, node: str, table_id: int, partition: Partition, buckets: Collection[int], schema: StoredSchema
    ) -> None:
        self._check(node)
        for tablet_id in _ids(table_id, partition, buckets):
            if (node, tablet_id) not in self.tablets:
                place = f"{table_id}-{partition.name}-{tablet_id.bucket}-{partition.incarnation}"
                root = self._folder / node / place
                root.parent.mkdir(exist_ok=True)
                self.tablets[node, tablet_id] = Tablet.create(root, schema, self.settings)

    def drop(self, node: str, table_id: int, partition: Partition, buckets: Collection[int]) -> None:
        self._check(node)
        for tablet_id in _ids(table_id, partition, buckets):
            tablet = self.tablets.pop((node, tablet_id), None)
            if tablet is not None:
                tablet.close()

    def change_schema(self, node: str, table_id: int, db: str, table: str, schema: StoredSchema) -> None:
        self._check(node)
        for (kept_by, tablet_id), tablet in self.tablets.items():
            if kept_by == node and tablet_id.table_id == table_id and tablet.schema.version < schema.version:
                tablet.change_schema(schema)

    def scan(self, node: str, request: ScanRequest) -> pa.Table:
        self._check(node)
        tablet = self.tablets.get((node, request.tablet))
        if tablet is None:
            raise NotFound(f"{node} has no tablet {request.tablet}")
        if request.pin:
            return ScanStream(self.pins[node].snapshot(request.pin, request.tablet), request).read_all()
        return ScanStream(tablet.pin(request.version), request).read_all()

    def tablet(self, node: str, tablet_id: TabletId) -> Tablet:
        self._check(node)
        if (node, tablet_id) not in self.tablets:
            raise NotFound(f"{node} has no tablet {tablet_id}")
        return self.tablets[node, tablet_id]

    def close(self) -> None:
        for tablet in self.tablets.values():
            tablet.close()

    def _check(self, node: str) -> None:
        if node in self.away:
            raise Unavailable(f"node {node} does not answer")


class Batches:
    """A `BatchStream` of what was read already."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.schema = table.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self._table.to_batches())

    def cancel(self) -> None:
        """Do nothing: nothing runs."""


class LocalSource:
    """A `StoredSource` in this process. `scanned` has what was requested of whom; `before_scan` may raise in
    a node's place."""

    def __init__(self, catalogue: Catalogue, views: ReadViews, nodes: LocalNodes) -> None:
        self._catalogue = catalogue
        self._views = views
        self._nodes = nodes
        self.scanned: list[tuple[str, ScanRequest]] = []
        self.stopped: set[str] = set()  # do not answer pings
        self.before_scan: Callable[[str, ScanRequest], None] = lambda node, request: None
        self.before_pin: Callable[[str, Pin], None] = lambda node, request: None

    def tables(self) -> tuple[wire.TableInfo, ...]:
        return self._catalogue.tables()

    def databases(self) -> tuple[str, ...]:
        return self._catalogue.databases()

    def create_database(self, name: str, *, if_not_exists: bool = False) -> None:
        self._catalogue.create_database(name, if_not_exists=if_not_exists)

    def drop_database(self, name: str) -> None:
        self._catalogue.drop_database(name)

    def read_view(self, names: Sequence[wire.TableName]) -> wire.ReadView:
        return self._views.read_view(names)

    def scan(self, address: str, request: ScanRequest, timeout_s: float) -> Batches:
        self.scanned.append((address, request))
        self.before_scan(address, request)
        return Batches(self._nodes.scan(address, request))

    def pin(self, address: str, request: Pin) -> frozenset[TabletId]:
        self.before_pin(address, request)
        self._nodes._check(address)
        return frozenset(self._nodes.pins[address].pin(request).tablets)

    def unpin(self, address: str, request: Unpin) -> None:
        self._nodes._check(address)
        self._nodes.pins[address].unpin(request)

    def ping(self, address: str, within_s: float) -> None:
        if address in self.stopped:
            raise Unavailable(f"{address} does not answer")

    def create(self, definition: StoredTable, *, if_not_exists: bool = False) -> wire.TableInfo:
        return self._catalogue.create_table(definition, if_not_exists=if_not_exists)

    def drop(self, name: wire.TableName) -> None:
        self._catalogue.drop_table(name.db, name.name)

    def change_columns(self, name: wire.TableName, changes: Sequence[wire.ColumnChange]) -> wire.TableInfo:
        return self._catalogue.change_columns(name.db, name.name, changes)

    def truncate(self, name: wire.TableName) -> wire.TableInfo:
        return self._catalogue.truncate(name.db, name.name)

    def add_partition(self, name: wire.TableName, asked: wire.AddPartition) -> wire.TableInfo:
        return self._catalogue.add_partition(name.db, name.name, asked)

    def drop_partition(
        self, name: wire.TableName, partition: str, *, if_exists: bool = False
    ) -> wire.TableInfo:
        return self._catalogue.drop_partition(name.db, name.name, partition, if_exists=if_exists)

    def partitions(self, name: wire.TableName) -> tuple[wire.PartitionInfo, ...]:
        return self._views.partitions(name)

    def transaction(self, db: str, label: str) -> wire.TransactionInfo:
        raise NotFound(f"no transaction has the label {label}")

    def transactions(self, db: str, like: str) -> tuple[wire.TransactionInfo, ...]:
        return ()

    def close(self) -> None:
        """Do nothing: a query service closes its source, and the world goes on."""


class StoredWorld(Closeable):
    """Loads and scans may run beside each other."""

    def __init__(self, *, replication: int = 2, settings: TabletSettings | None = None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="rtolap-stored-", dir=IN_MEMORY)
        folder = Path(self._folder.name)
        self.clock = ManualClock(NOW_MS)
        self.ledger = open_ledger(folder / "ledger.db", clock=self.clock)
        mastership = Mastership(Leases(self.ledger), "here", lease_ms=_FOR_EVER_MS)
        assert mastership.acquire()
        self.nodes = LocalNodes(folder, settings)
        self.catalogue = Catalogue(
            self.ledger, mastership, self.nodes, lambda connection: NODES, replication=replication
        )
        self.views = ReadViews(self.ledger, lambda connection: {node: node for node in NODES})
        self.source = LocalSource(self.catalogue, self.views, self.nodes)
        self._txn = 0
        self._loading = threading.Lock()

    def close(self) -> None:
        self.nodes.close()
        self.ledger.close()
        self._folder.cleanup()

    def load(self, name: wire.TableName, rows: list[dict[str, Any]]) -> None:
        """Load these rows in one visible transaction, on all replicas of their tablets. Rows of unique tables
        may have DELETE_SIGN."""
        with self._loading:
            self._load(name, rows)

    def compact(self, name: wire.TableName) -> None:
        """Compact all tablets of the table, as far as there is something to do."""
        for (_, tablet_id), tablet in self.nodes.tablets.items():
            if (tablet_id.db, tablet_id.table) == (name.db, name.name):
                while tablet.compact():
                    pass

    def _load(self, name: wire.TableName, rows: list[dict[str, Any]]) -> None:
        table = self.catalogue.table(name.db, name.name)
        names = [column for column in table.schema.names if any(column in row for row in rows)]
        columns = rows_schema(table.schema, names)
        if any(DELETE_SIGN in row for row in rows):
            columns = columns.append(pa.field(DELETE_SIGN, pa.bool_()))
        batch = pa.RecordBatch.from_pylist(rows, schema=columns)
        absent = Routing(table.definition, table.schema, table.partitions).split(batch).absent
        if absent:
            instants_ms = [part.start_ms for part in absent]
            table = self.catalogue.ensure_partitions(name.db, name.name, instants_ms)
        self._txn += 1
        parts = Routing(table.definition, table.schema, table.partitions).split(batch).parts
        written_names = {part.partition for part in parts}
        live = self.ledger.read("r", lambda it: partition_rows.of_table(it, name.db, name.name))
        written = {part for part in live if part.name in written_names}

        def versions(connection: Connection) -> dict[str, int]:
            return {each.name: partition_rows.assign(connection, each) for each in sorted(written)}

        assigned = self.ledger.write("assign versions", dict[str, int], versions)
        for (_, tablet_id), tablet in self.nodes.tablets.items():
            if tablet_id.table_id != table.table_id or tablet_id.partition not in assigned:
                continue
            loading = tablet.begin(self._txn)
            for part in parts:
                if (part.partition, part.bucket) == (tablet_id.partition, tablet_id.bucket):
                    loading.add_rows(part.rows)
            loading.prepare()
            tablet.publish(self._txn, assigned[tablet_id.partition])

        def publish(connection: Connection) -> None:
            for each in sorted(written):
                version = assigned[each.name]
                assert partition_rows.make_visible(connection, each, version)
                for replica in partition_rows.replicas(connection, (each,)):
                    buckets = (replica.tablet.bucket,)
                    partition_rows.reached(connection, replica.node, each, buckets, version)

        self.ledger.write("make a load visible", type(None), publish)


def _ids(table_id: int, partition: Partition, buckets: Collection[int]) -> list[TabletId]:
    names = (partition.db, partition.table, partition.name)
    return [TabletId(table_id, *names, bucket, partition.incarnation) for bucket in buckets]
