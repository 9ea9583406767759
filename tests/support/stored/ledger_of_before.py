"""A ledger as the revision without incarnations left it, and what a program finds in it after the upgrade."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from rtolap.model.stored.partitions import WHOLE, PartitionRange
from rtolap.model.stored.schema import initial_schema
from rtolap.model.stored.table import StoredColumn, StoredTable
from rtolap.stored.frontend.catalogue.table_writes import end_partition
from rtolap.stored.metastore import partitions, pending_tablet_tasks, replica_moves, tables, transactions
from rtolap.stored.metastore.database import Connection, Ledger
from rtolap.stored.metastore.records import Partition, PartitionVersions, Replica, Tablet
from rtolap.stored.metastore.upgrade import HEAD, SHIPPED, present_revision

_TABLE = StoredTable(
    database="d", name="t", columns=(StoredColumn("id", "int"),), keys=("id",), model="unique"
)
_NAMES = {"db": "d", "tbl": "t", "part": WHOLE.name}


def check_incarnations_after_upgrade(engine: sa.Engine, open_ledger: Callable[[], Ledger]) -> None:
    """Make and fill a ledger of revision 0005, open it, and check that everything in it is found, and goes
    on."""
    with engine.begin() as connection:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(SHIPPED.folder))
        command.upgrade(config, "0005")
        _fill(connection)
    engine.dispose()
    before = Partition("d", "t", WHOLE.name)
    with open_ledger() as ledger:
        assert ledger.read("r", present_revision) == HEAD
        table = ledger.read("r", lambda it: tables.get(it, "d", "t"))
        assert ledger.read("r", lambda it: tables.partition(it, table, WHOLE)) == before
        assert ledger.read("r", lambda it: partitions.versions(it, before)) == PartitionVersions(3, 2)
        replica = Replica(Tablet(before, 0), "n1", 2)
        assert ledger.read("r", lambda it: partitions.replicas(it, (before,))) == (replica,)
        assert ledger.read("r", lambda it: transactions.touched(it, 7)) == {before: 3}
        (move,) = ledger.read("r", replica_moves.all_moves)
        assert move.tablet == Tablet(before, 0)
        (task,) = ledger.read("r", pending_tablet_tasks.all_tasks)
        assert (task.part, task.incarnation) == (WHOLE.name, 0)
        assert ledger.write("w", int, lambda it: partitions.assign(it, before)) == 4

        def remake(it: Connection) -> Partition:
            end_partition(it, table, WHOLE)
            return tables.add_partition(it, table, WHOLE, {0: ("n1",)})

        assert ledger.write("w", Partition, remake) == msgspec.structs.replace(before, incarnation=1)
        owed = ledger.read("r", lambda it: pending_tablet_tasks.of_table(it, table.table_id))
        assert {(task.node, task.kind, task.incarnation) for task in owed} == {
            ("n1", "drop", 0),
            ("n2", "drop", 0),
        }
        later = PartitionRange(1, 2, "p2")
        made = ledger.write("w", Partition, lambda it: tables.add_partition(it, table, later, {0: ("n1",)}))
        assert made.incarnation == 2


def _fill(connection: sa.Connection) -> None:
    definition = msgspec.json.encode(_TABLE).decode()
    columns = msgspec.json.encode(initial_schema(_TABLE)).decode()
    rows: dict[str, dict[str, object]] = {
        "stored_table": {
            "table_id": 5,
            "db": "d",
            "tbl": "t",
            "definition": definition,
            "columns": columns,
            "created_at_ms": 1,
        },
        "stored_partition": {
            "table_id": 5,
            "part": WHOLE.name,
            "start_ms": WHOLE.start_ms,
            "end_ms": WHOLE.end_ms,
        },
        "load_partition": {**_NAMES, "committed_version": 3, "visible_version": 2},
        "load_replica": {**_NAMES, "bucket": 0, "node": "n1", "version": 2},
        "transaction_partition": {**_NAMES, "txn_id": 7, "version": 3},
        "pending_tablet_task": {
            **_NAMES,
            "table_id": 5,
            "node": "n1",
            "kind": "create",
            "buckets": "[0]",
        },
        "replica_move": {
            **_NAMES,
            "bucket": 0,
            "table_id": 5,
            "old_node": "n1",
            "node": "n2",
            "reason": "drain",
            "state": "COPYING",
            "fence_txn_id": 0,
        },
    }
    for name, row in rows.items():
        table = sa.table(name, *(sa.column(column) for column in row))
        connection.execute(sa.insert(table).values(row))
