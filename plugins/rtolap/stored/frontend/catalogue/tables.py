"""Stored tables as the front end knows them: made, changed and dropped by the master, read by every front
end.

A table is there as soon as the ledger says so (`table_changes`), and loads of it need what loads always need:
a majority of each tablet's replicas. Nothing is remembered beside the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import msgspec

from rtolap.base.errors import AlreadyExists, DefinitionError, NotFound, NotYet, Refused
from rtolap.model.schema_changes import add_column, drop_column, rename_column
from rtolap.model.stored.schema import DefinedTable, StoredSchema, initial_schema
from rtolap.model.stored.table import StoredTable
from rtolap.model.validation.stored_table import validate_stored_table
from rtolap.protocols.stored_tables.messages import (
    AddColumn,
    AddPartition,
    ColumnChange,
    DropColumn,
    TableInfo,
)
from rtolap.stored.frontend.catalogue.partitions import Partitions
from rtolap.stored.frontend.catalogue.read_views import read_entry
from rtolap.stored.frontend.catalogue.table_changes import ChangeRequest, Made, TableChanges
from rtolap.stored.frontend.catalogue.table_writes import REPLICATION, end_table, first_partitions
from rtolap.stored.frontend.catalogue.task_dispatcher import TaskDispatcher, on_majority, without_majority
from rtolap.stored.frontend.election import Mastership
from rtolap.stored.frontend.transactions.participants import TabletHosts
from rtolap.stored.metastore import partitions as partition_rows
from rtolap.stored.metastore import pending_tablet_tasks as tasks
from rtolap.stored.metastore import tables as rows
from rtolap.stored.metastore.database import Connection, Ledger
from rtolap.stored.metastore.records import PendingTabletTask
from rtolap.stored.stream_load.table_entry import TableEntry, table_info

RESERVED = ("rtolap", "information_schema")  # SQL has cubes and lookups in the one, itself in the other


class Catalogue:
    """The databases and tables. Thread-safe; changes raise NotLeader on a front end that is not master.

    A change with a `request_id` is made once: a repetition gets the first answer. It is Refused where the id
    belongs to another change.

    Args:
        nodes: returns the names of the storage nodes that accept new tablets.
        lately: returns the nodes with a recent heartbeat, which get replicas where too few nodes are up. Both
            read with the given connection.
    """

    def __init__(
        self,
        ledger: Ledger,
        mastership: Mastership,
        hosts: TabletHosts,
        nodes: Callable[[Connection], Collection[str]],
        *,
        lately: Callable[[Connection], Collection[str]] = lambda connection: (),
        replication: int = REPLICATION,
    ) -> None:
        self._ledger, self._nodes = ledger, nodes
        self._dispatcher = TaskDispatcher(ledger, mastership, hosts)
        self._changes = TableChanges(mastership, self._dispatcher)
        self.partitions = Partitions(mastership, self._dispatcher, nodes, lately, replication)

    # What is there

    def table(self, db: str, name: str) -> TableEntry:
        """Return a table. Raises NotFound."""
        return self._ledger.read("read a table", lambda connection: read_entry(connection, db, name))

    def table_to_load(self, db: str, name: str) -> TableEntry:
        """Return a table whose rows may be sent. Where another request has made a table or partition and its
        tasks are still being sent to nodes, this waits for them. Raises NotFound."""

        def work(connection: Connection) -> tuple[TableEntry, tuple[PendingTabletTask, ...]]:
            entry = read_entry(connection, db, name)
            return entry, tasks.of_table(connection, entry.table_id)

        entry, owed = self._ledger.read("read a table to load", work)
        if without_majority(entry.replicas, owed):
            self._dispatcher.of_table(entry.table_id)
        return entry

    def can_take(self, entry: TableEntry, partitions: Collection[str]) -> bool:
        """Return True if each tablet of these partitions has a majority of its replicas on live nodes without
        a pending task to create it. Where not, the table's pending tasks are sent once more.
        """

        def work(connection: Connection) -> tuple[tuple[PendingTabletTask, ...], Collection[str]]:
            return tasks.of_table(connection, entry.table_id), self._nodes(connection)

        wanted = frozenset(partitions)
        replicas = [each for each in entry.replicas if each.tablet.partition.name in wanted]
        for is_reloaded in (False, True):
            owed, living = self._ledger.read("read who can take rows", work)
            if on_majority(replicas, owed, living):
                return True
            if not is_reloaded:
                self._dispatcher.of_table(entry.table_id)
        return False

    def tables(self) -> tuple[TableInfo, ...]:
        """Return all tables, by name."""

        def work(connection: Connection) -> tuple[TableInfo, ...]:
            rows_found = rows.all_tables(connection)
            ranges = rows.ranges_of(connection, [table.table_id for table in rows_found])
            return tuple(table_info(table, ranges.get(table.table_id, ())) for table in rows_found)

        return self._ledger.read("read all tables", work)

    def databases(self) -> tuple[str, ...]:
        """Return the names of databases that were created or contain tables, in order."""
        return self._ledger.read("read all databases", rows.databases)

    # What changes it

    def create_database(
        self, name: str, *, if_not_exists: bool = False, request_id: str | None = None
    ) -> None:
        """Create a database. It also comes with its first table. Raises DefinitionError; Refused where it
        exists."""
        _check_database(name, f"database {name} cannot be created")

        def work(connection: Connection, now_ms: int) -> Made:
            if name not in rows.databases(connection):
                rows.insert_database(connection, name, now_ms)
            elif not if_not_exists:
                raise AlreadyExists(f"database {name} is there already")
            return Made()

        change = ChangeRequest.of(request_id, "create database", name, if_not_exists)
        self._changes.make(f"create database {name}", change, work)

    def drop_database(self, name: str, *, request_id: str | None = None) -> None:
        """Drop a database. Raises NotFound; Refused while tables are in it."""

        def work(connection: Connection, now_ms: int) -> Made:
            if name not in rows.databases(connection):
                raise NotFound(f"unknown database {name}")
            inside = [table.name for table in rows.all_tables(connection) if table.db == name]
            if inside:
                raise Refused(
                    f"database {name} has tables", found=", ".join(inside), action="drop them first"
                )
            rows.delete_database(connection, name)
            return Made()

        change = ChangeRequest.of(request_id, "drop database", name)
        self._changes.make(f"drop database {name}", change, work)

    def create_table(
        self, definition: StoredTable, *, if_not_exists: bool = False, request_id: str | None = None
    ) -> TableInfo:
        """Create a table; one of the same definition that exists is left as it is. Raises DefinitionError;
        Refused where a table of that name has another definition; Unavailable without a storage node.
        """
        validate_stored_table(definition)
        problem = f"table {definition.name} cannot be in database {definition.database}"
        _check_database(definition.database, problem)

        def work(connection: Connection, now_ms: int) -> Made:
            rows_found = rows.find(connection, definition.database, definition.name)
            if rows_found is not None:
                if rows_found.definition != definition and not if_not_exists:
                    raise AlreadyExists(
                        f"table {definition.qualified_name} is there already with another definition",
                        action="drop it first, or change its columns",
                    )
                return _made(connection, rows_found)
            table = rows.insert(connection, definition, initial_schema(definition), now_ms)
            self.partitions.place(connection, table, first_partitions(definition, now_ms))
            return _made(connection, table)

        change = ChangeRequest.of(request_id, "create", definition, if_not_exists)
        return _present(self._changes.make(f"create table {definition.qualified_name}", change, work))

    def change_columns(
        self, db: str, name: str, changes: Sequence[ColumnChange], *, request_id: str | None = None
    ) -> TableInfo:
        """Change columns, all of them or none. Loads that have begun keep the columns they have begun with.

        Raises NotFound, DefinitionError."""

        def work(connection: Connection, now_ms: int) -> Made:
            table = rows.get(connection, db, name)
            rows.change_schema(connection, table, _changed(table.schema, changes))
            nodes = partition_rows.nodes_of(connection, db, (name,))
            owed = [PendingTabletTask(table.table_id, db, name, "", node, "schema") for node in nodes]
            tasks.add_tasks(connection, owed)
            return _made(connection, rows.get(connection, db, name))

        change = ChangeRequest.of(request_id, "columns", db, name, changes)
        return _present(self._changes.make(f"change columns of {db}.{name}", change, work))

    def drop_table(self, db: str, name: str, *, request_id: str | None = None) -> None:
        """Drop a table. Raises NotFound; NotYet while a load that has written to it runs."""

        def work(connection: Connection, now_ms: int) -> Made:
            table = rows.get(connection, db, name)
            end_table(connection, table)
            return Made((table.table_id,))

        change = ChangeRequest.of(request_id, "drop", db, name)
        self._changes.make(f"drop table {db}.{name}", change, work)

    def truncate(self, db: str, name: str, *, request_id: str | None = None) -> TableInfo:
        """Put an empty table in the place of this one, with a new id and the same columns. Raises as
        `drop_table`."""

        def work(connection: Connection, now_ms: int) -> Made:
            table = rows.get(connection, db, name)
            end_table(connection, table)
            recreated = rows.insert(connection, table.definition, table.schema, now_ms)
            self.partitions.place(connection, recreated, first_partitions(table.definition, now_ms))
            return _made(connection, recreated, also_owing=table.table_id)

        change = ChangeRequest.of(request_id, "truncate", db, name)
        return _present(self._changes.make(f"truncate table {db}.{name}", change, work))

    def ensure_partitions(self, db: str, name: str, instants_ms: Collection[int]) -> TableEntry:
        """Have the partitions of these instants exist, if the table's loads make any; return the table as
        `table_to_load` does.

        Raises as `Partitions.ensure`.
        """
        table = self.table(db, name)
        policy = table.definition.partitions
        if policy is not None and policy.on_demand:
            try:
                self.partitions.ensure(db, name, instants_ms)
            except NotYet:
                self._dispatcher.of_table(table.table_id)  # so that it is gone when the caller asks again
                raise
        return self.table_to_load(db, name)

    def add_partition(
        self, db: str, name: str, requested: AddPartition, *, request_id: str | None = None
    ) -> TableInfo:
        """Add a partition. Raises as `Partitions.add_partition`."""

        def work(connection: Connection, now_ms: int) -> Made:
            return _made(connection, self.partitions.add_partition(connection, now_ms, db, name, requested))

        request = ChangeRequest.of(request_id, "add partition", db, name, requested)
        return _present(self._changes.make(f"add partition {requested.name} to {db}.{name}", request, work))

    def drop_partition(
        self,
        db: str,
        name: str,
        partition: str,
        *,
        if_exists: bool = False,
        request_id: str | None = None,
    ) -> TableInfo:
        """Drop a partition. Raises as `Partitions.drop`."""

        def work(connection: Connection, now_ms: int) -> Made:
            return _made(connection, self.partitions.drop(connection, db, name, partition, if_exists))

        request = ChangeRequest.of(request_id, "drop partition", db, name, partition, if_exists)
        return _present(self._changes.make(f"drop partition {partition} of {db}.{name}", request, work))

    def settle(self) -> int:
        """Send nodes their pending tasks; return how many were completed."""
        return self._dispatcher.everything()


def _check_database(name: str, problem: str) -> None:
    if name in RESERVED:
        raise DefinitionError(problem, expected=f"another database than {' and '.join(RESERVED)}")


def _made(connection: Connection, table: DefinedTable, *, also_owing: int | None = None) -> Made:
    """Return the table that was made. `also_owing` is a table whose place it has taken; that table's pending
    tasks are sent first."""
    before = () if also_owing is None else (also_owing,)
    return Made((*before, table.table_id), table_info(table, rows.ranges(connection, table)))


def _present(table: TableInfo | None) -> TableInfo:
    assert table is not None
    return table


def _changed(schema: StoredSchema, changes: Sequence[ColumnChange]) -> StoredSchema:
    """Return the schema after all of these changes, one version later. Raises as `model.schema_changes`."""
    after = schema
    for change in changes:
        if isinstance(change, AddColumn):
            after = add_column(after, change.column)
        elif isinstance(change, DropColumn):
            after = drop_column(after, change.name)
        else:
            after = rename_column(after, change.name, change.new_name)
    return schema if after is schema else msgspec.structs.replace(after, version=schema.version + 1)
