"""Stored tables as the door knows them: made, changed and dropped by the master, read by every door.

A change, numbered by what a crash after each step leaves behind:

    1. one write of the ledger: the change, and what each node is to be told of it (`tablet_debts`)
    2. the nodes are told, those that answer        the rest is owed, and the upkeep tells them
    3. the answer

So a table is there from step 1 on, and loads of it need what loads always need: a majority of each tablet's
replicas. Nothing is remembered beside the ledger.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

import msgspec

from rtolap.base.errors import CommitConflict, DefinitionError, NotYet, Refused
from rtolap.ledger import partitions as partition_rows
from rtolap.ledger import tables as rows
from rtolap.ledger import tablet_debts as debts
from rtolap.ledger.database import Connection, Ledger
from rtolap.ledger.records import Replica, StoredTableRow, TabletDebt
from rtolap.model.stored_partitions import PartitionRange, partition_of, to_create, to_drop
from rtolap.model.stored_schema import StoredSchema, initial_schema
from rtolap.model.stored_table import StoredTable
from rtolap.model.validate_stored_table import validate_stored_table
from rtolap.streamload.column_changes import changed
from rtolap.streamload.mastership import Mastership
from rtolap.streamload.placement import REPLICATION
from rtolap.streamload.table_writes import (
    add_partitions,
    check_wanted,
    end_partition,
    end_table,
    first_partitions,
)
from rtolap.streamload.tablet_hosts import TabletHosts
from rtolap.streamload.telling import Telling
from rtolap.wire.stored_tables import ColumnChange, TableInfo

log = logging.getLogger(__name__)

RESERVED = ("rtolap", "information_schema")  # SQL has cubes and lookups in the one, itself in the other


class TableEntry(msgspec.Struct, frozen=True):
    """All that a load needs to know of a table, read at one moment. `partitions` in the order of time."""

    table_id: int
    definition: StoredTable
    schema: StoredSchema
    created_at_ms: int
    partitions: tuple[PartitionRange, ...]
    replicas: tuple[Replica, ...]

    @property
    def info(self) -> TableInfo:
        return TableInfo(
            table_id=self.table_id,
            definition=self.definition,
            schema=self.schema,
            created_at_ms=self.created_at_ms,
            partitions=self.partitions,
        )


class Catalogue:
    """All calls are thread-safe; those that change something raise NotLeader where somebody else is master.

    `nodes`: the names of the storage nodes that new tablets may go to, read with the given connection.
    """

    def __init__(
        self,
        ledger: Ledger,
        mastership: Mastership,
        hosts: TabletHosts,
        nodes: Callable[[Connection], Collection[str]],
        *,
        replication: int = REPLICATION,
    ) -> None:
        self._ledger = ledger
        self._mastership = mastership
        self._telling = Telling(ledger, mastership, hosts)
        self._nodes = nodes
        self._replication = replication

    # What is there

    def table(self, db: str, name: str) -> TableEntry:
        """Raises NotFound."""
        return self._ledger.read("read a table", lambda connection: _entry(connection, db, name))

    def tables(self) -> tuple[TableInfo, ...]:
        """All, by name."""

        def work(connection: Connection) -> tuple[TableInfo, ...]:
            found = rows.all_tables(connection)
            ranges = rows.ranges_of(connection, [table.table_id for table in found])
            return tuple(_info(table, ranges.get(table.table_id, ())) for table in found)

        return self._ledger.read("read all tables", work)

    # What changes it

    def create_table(self, definition: StoredTable, *, if_not_exists: bool = False) -> TableInfo:
        """Repeating it changes nothing. Raises DefinitionError; Refused where a table of that name has
        another definition; Unavailable without a storage node."""
        validate_stored_table(definition)
        if definition.database in RESERVED:
            raise DefinitionError(
                f"table {definition.name} cannot be in database {definition.database}",
                expected=f"another database than {' and '.join(RESERVED)}",
            )

        def work(connection: Connection) -> bool:
            now_ms = self._mastership.fence(connection)
            found = rows.find(connection, definition.database, definition.name)
            if found is not None:
                if found.definition != definition and not if_not_exists:
                    raise Refused(
                        f"table {definition.qualified_name} is there already with another definition",
                        action="drop it first, or change its columns",
                    )
                return False
            table = rows.insert(connection, definition, initial_schema(definition), now_ms)
            self._add(connection, table, first_partitions(definition, now_ms))
            return True

        what = f"create table {definition.qualified_name}"
        try:
            made = self._ledger.write(what, bool, work)
        except CommitConflict:  # somebody else was the first to create it
            made = self._ledger.write(what, bool, work)
        entry = self.table(definition.database, definition.name)
        if made:
            self._telling.of_table(entry.table_id)
        return entry.info

    def change_columns(self, db: str, name: str, changes: Sequence[ColumnChange]) -> TableInfo:
        """All of them or none. Loads that have begun keep the columns they have begun with.

        Raises NotFound, DefinitionError."""

        def work(connection: Connection) -> None:
            self._mastership.fence(connection)
            table = rows.get(connection, db, name)
            rows.change_schema(connection, table, changed(table.schema, changes))
            nodes = partition_rows.nodes_of(connection, db, (name,))
            owed = [TabletDebt(table.table_id, db, name, "", node, "schema") for node in nodes]
            debts.add(connection, owed)

        self._ledger.write(f"change columns of {db}.{name}", type(None), work)
        entry = self.table(db, name)
        self._telling.of_table(entry.table_id)
        return entry.info

    def drop_table(self, db: str, name: str) -> None:
        """Raises NotFound; NotYet while a load that has written to it runs."""

        def work(connection: Connection) -> int:
            self._mastership.fence(connection)
            table = rows.get(connection, db, name)
            end_table(connection, table)
            return table.table_id

        self._telling.of_table(self._ledger.write(f"drop table {db}.{name}", int, work))

    def truncate(self, db: str, name: str) -> TableInfo:
        """An empty table in the place of this one: a new id, the same columns. Raises as `drop_table`."""

        def work(connection: Connection) -> int:
            now_ms = self._mastership.fence(connection)
            table = rows.get(connection, db, name)
            end_table(connection, table)
            anew = rows.insert(connection, table.definition, table.schema, now_ms)
            self._add(connection, anew, first_partitions(table.definition, now_ms))
            return table.table_id

        self._telling.of_table(self._ledger.write(f"truncate table {db}.{name}", int, work))
        entry = self.table(db, name)
        self._telling.of_table(entry.table_id)
        return entry.info

    def ensure_partitions(self, db: str, name: str, instants_ms: Collection[int]) -> TableEntry:
        """The partitions that these instants are in exist; the table as it is then.

        Raises NotFound; Refused for an instant whose partition retention would drop at once, or for too many
        of them in one load; NotYet while one of that name is still being dropped.
        """
        definition = self.table(db, name).definition
        policy = definition.partitions
        if policy is not None:
            wanted = sorted({partition_of(instant_ms, policy.unit) for instant_ms in instants_ms})
            self._make_partitions(db, name, lambda now_ms, existing: wanted)
        return self.table(db, name)

    def create_ahead(self, db: str, name: str) -> int:
        """Make the partitions of the present and of the near future; how many were missing."""
        policy = self.table(db, name).definition.partitions
        if policy is None:
            return 0
        return self._make_partitions(db, name, lambda now_ms, existing: to_create(policy, now_ms, existing))

    def drop_old(self, db: str, name: str) -> int:
        """Drop the partitions that retention has passed; how many. One that a load still runs into stays."""

        def work(connection: Connection) -> int:
            now_ms = self._mastership.fence(connection)
            table = rows.get(connection, db, name)
            policy = table.definition.partitions
            if policy is None:
                return 0
            dropped = 0
            for part in to_drop(policy, now_ms, rows.ranges(connection, table)):
                try:
                    end_partition(connection, table, part)
                    dropped += 1
                except NotYet as error:
                    log.info("partition %s outlives its retention: %s", part.name, error)
            return dropped

        dropped = self._ledger.write(f"drop old partitions of {db}.{name}", int, work)
        if dropped:
            self._telling.everything()
        return dropped

    def settle(self) -> int:
        """Tell nodes what they have missed; how much of it was told."""
        return self._telling.everything()

    # How

    def _make_partitions(
        self,
        db: str,
        name: str,
        wanted: Callable[[int, Sequence[PartitionRange]], Sequence[PartitionRange]],
    ) -> int:
        """wanted: (now, those there are) -> those there should be as well."""

        def work(connection: Connection) -> tuple[int, int]:
            now_ms = self._mastership.fence(connection)
            table = rows.get(connection, db, name)
            existing = rows.ranges(connection, table)
            known = {part.start_ms for part in existing}
            missing = [part for part in wanted(now_ms, existing) if part.start_ms not in known]
            check_wanted(table, missing, now_ms)
            being_dropped = {
                debt.part for debt in debts.of_table(connection, table.table_id) if debt.kind == "drop"
            }
            for part in missing:
                if part.name in being_dropped:
                    raise NotYet(f"partition {part.name} of {db}.{name} is still being dropped")
            self._add(connection, table, missing)
            return table.table_id, len(missing)

        what = f"create partitions of {db}.{name}"
        try:
            table_id, made = self._ledger.write(what, tuple[int, int], work)
        except CommitConflict:  # somebody else was the first
            table_id, made = self._ledger.write(what, tuple[int, int], work)
        if made:
            self._telling.of_table(table_id)
        return made

    def _add(self, connection: Connection, table: StoredTableRow, parts: Sequence[PartitionRange]) -> None:
        nodes = self._nodes(connection) if parts else ()
        add_partitions(connection, table, parts, nodes, self._replication)


def _entry(connection: Connection, db: str, name: str) -> TableEntry:
    table = rows.get(connection, db, name)
    parts = rows.ranges(connection, table)
    return TableEntry(
        table.table_id,
        table.definition,
        table.schema,
        table.created_at_ms,
        parts,
        partition_rows.replicas_of(connection, db, name),
    )


def _info(table: StoredTableRow, parts: tuple[PartitionRange, ...]) -> TableInfo:
    return TableInfo(
        table_id=table.table_id,
        definition=table.definition,
        schema=table.schema,
        created_at_ms=table.created_at_ms,
        partitions=parts,
    )
