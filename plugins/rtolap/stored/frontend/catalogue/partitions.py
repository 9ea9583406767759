"""Partitions of stored tables: made ahead, on demand and on request; dropped behind, and on request.

Of the catalogue, which says what is there: each change is one write of the ledger, then nodes get tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta

from rtolap.base.errors import (
    CommitConflict,
    DefinitionError,
    NotFound,
    NotYet,
    PartitionExists,
    PartitionNotFound,
    Refused,
)
from rtolap.model.stored.partitions import PartitionRange, partition_of, to_create, to_drop
from rtolap.model.stored.schema import DefinedTable
from rtolap.model.stored.table import StoredTable
from rtolap.protocols.stored_tables.messages import AddPartition
from rtolap.stored.frontend.catalogue.table_writes import add_partitions, check_wanted, end_partition
from rtolap.stored.frontend.catalogue.task_dispatcher import TaskDispatcher
from rtolap.stored.frontend.election import Mastership
from rtolap.stored.metastore import pending_tablet_tasks as tasks
from rtolap.stored.metastore import tables as rows
from rtolap.stored.metastore.database import Connection

log = logging.getLogger(__name__)

# (the table, now, its partitions) -> those there should be as well
Wanted = Callable[[DefinedTable, int, Sequence[PartitionRange]], Sequence[PartitionRange]]


class Partitions:
    """The partitions of tables. Thread-safe; every call raises NotLeader on a front end that is not master.

    Args:
        nodes: returns the names of the storage nodes that accept new tablets.
        lately: returns the nodes with a recent heartbeat, living or not. Both read with the given connection.
    """

    def __init__(
        self,
        mastership: Mastership,
        dispatcher: TaskDispatcher,
        nodes: Callable[[Connection], Collection[str]],
        lately: Callable[[Connection], Collection[str]],
        replication: int,
    ) -> None:
        self._mastership = mastership
        self._dispatcher = dispatcher
        self._nodes, self._lately = nodes, lately
        self._replication = replication

    def ensure(self, db: str, name: str, instants_ms: Collection[int]) -> int:
        """Have the partitions of these instants exist, if the table's loads make any; return how many were
        missing.

        Raises NotFound; Refused for an instant whose partition retention would drop at once, or for too many
        of them in one load; NotYet while one of that name is still being dropped.
        """

        def wanted(
            table: DefinedTable, now_ms: int, existing: Sequence[PartitionRange]
        ) -> list[PartitionRange]:
            policy = table.definition.partitions
            if policy is None or not policy.on_demand:
                return []
            return sorted({partition_of(instant_ms, policy.unit) for instant_ms in instants_ms})

        return self._make(db, name, wanted)

    def create_ahead(self, db: str, name: str) -> int:
        """Make the partitions of the present and of the near future; how many were missing."""

        def wanted(
            table: DefinedTable, now_ms: int, existing: Sequence[PartitionRange]
        ) -> tuple[PartitionRange, ...]:
            policy = table.definition.partitions
            return () if policy is None else to_create(policy, now_ms, existing)

        return self._make(db, name, wanted)

    def add_partition(
        self, connection: Connection, now_ms: int, db: str, name: str, requested: AddPartition
    ) -> DefinedTable:
        """Add a partition within a write of the caller's, who sends the nodes their tasks; return its table.

        Raises what `requested_partition` and `ensure` do; Refused where the partition exists and may not."""

        def wanted(
            table: DefinedTable, now_ms: int, existing: Sequence[PartitionRange]
        ) -> list[PartitionRange]:
            known = {part.name for part in existing}
            if requested.name in known and requested.if_not_exists:
                return []
            partition = requested_partition(table.definition, existing, requested)
            if partition.name in known:
                raise PartitionExists(f"partition {partition.name} of {db}.{name} is there already")
            return [partition]

        table, _ = self._place_missing(connection, now_ms, db, name, wanted)
        return table

    def drop(
        self, connection: Connection, db: str, name: str, partition: str, if_exists: bool
    ) -> DefinedTable:
        """Drop a partition with its rows, within a write of the caller's, who sends the nodes their tasks;
        return its table.

        Raises NotFound and DefinitionError; NotYet while a load that wrote to it runs."""
        table = rows.get(connection, db, name)
        existing = rows.ranges(connection, table)
        try:
            end_partition(connection, table, named_partition(table.definition, existing, partition))
        except NotFound:
            if not if_exists:
                raise
        return table

    def drop_old(self, db: str, name: str) -> int:
        """Drop the partitions that retention has passed; return their number. A partition that a load still
        writes to stays."""

        def work(connection: Connection, now_ms: int) -> int:
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

        dropped = self._mastership.write(f"drop old partitions of {db}.{name}", int, work)
        if dropped:
            self._dispatcher.everything()
        return dropped

    def place(self, connection: Connection, table: DefinedTable, parts: Sequence[PartitionRange]) -> None:
        """Place partitions within a write of the caller's. Raises Unavailable without a node to place them
        on."""
        if parts:
            nodes, away = self._nodes(connection), self._lately(connection)
            add_partitions(connection, table, parts, nodes, away, self._replication)

    def _make(self, db: str, name: str, wanted: Wanted) -> int:
        def work(connection: Connection, now_ms: int) -> tuple[int, int]:
            table, created = self._place_missing(connection, now_ms, db, name, wanted)
            return table.table_id, created

        purpose = f"create partitions of {db}.{name}"
        try:
            table_id, created_count = self._mastership.write(purpose, tuple[int, int], work)
        except CommitConflict:  # somebody else was the first
            table_id, created_count = self._mastership.write(purpose, tuple[int, int], work)
        if created_count:
            self._dispatcher.of_table(table_id)
        return created_count

    def _place_missing(
        self, connection: Connection, now_ms: int, db: str, name: str, wanted: Wanted
    ) -> tuple[DefinedTable, int]:
        """Return the table, and how many of its wanted partitions were missing."""
        table = rows.get(connection, db, name)
        existing = rows.ranges(connection, table)
        known = {part.start_ms for part in existing}
        missing = [part for part in wanted(table, now_ms, existing) if part.start_ms not in known]
        check_wanted(table, missing, now_ms)
        being_dropped = {
            task.part for task in tasks.of_table(connection, table.table_id) if task.kind == "drop"
        }
        for part in missing:
            if part.name in being_dropped:
                raise NotYet(f"partition {part.name} of {db}.{name} is still being dropped")
        self.place(connection, table, missing)
        return table, len(missing)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def requested_partition(
    table: StoredTable, existing: Iterable[PartitionRange], requested: AddPartition
) -> PartitionRange:
    """Return the range of a partition. Raises DefinitionError where the table has no partitions, or none with
    these bounds and this name; Refused for one without a lower bound where none ends below it."""
    policy = table.partitions
    if policy is None:
        raise _unpartitioned(table, f"partition {requested.name} cannot be added")
    start_ms = requested.start_ms
    if start_ms is None:
        start_ms = max((part.end_ms for part in existing if part.end_ms < requested.end_ms), default=None)
    if start_ms is None:
        raise Refused(
            f"partition {requested.name} of {table.qualified_name} has no lower bound",
            expected='a partition that ends before it, or both bounds: VALUES [("…"), ("…"))',
        )
    range_of_start = partition_of(start_ms, policy.unit)
    if (range_of_start.start_ms, range_of_start.end_ms) != (start_ms, requested.end_ms):
        raise DefinitionError(
            f"partition {requested.name} of {table.qualified_name} is not one {policy.unit}",
            expected=f"such as {_text(range_of_start.start_ms)} to {_text(range_of_start.end_ms)}",
            found=f"{_text(start_ms)} to {_text(requested.end_ms)}",
        )
    if range_of_start.name != requested.name:
        raise DefinitionError(
            f"partition {requested.name} of {table.qualified_name} has another name than its time says",
            expected=range_of_start.name,
            found=requested.name,
        )
    return range_of_start


def named_partition(table: StoredTable, existing: Iterable[PartitionRange], name: str) -> PartitionRange:
    """Return the range of a partition by name. Raises NotFound, and DefinitionError where the table has no
    partitions."""
    if table.partitions is None:
        raise _unpartitioned(table, f"partition {name} cannot be dropped")
    for part in existing:
        if part.name == name:
            return part
    raise PartitionNotFound(f"no partition {name} in {table.qualified_name}")


def _unpartitioned(table: StoredTable, action: str) -> DefinitionError:
    return DefinitionError(
        action, expected="a table that is partitioned", found=f"{table.qualified_name}, which is not"
    )


def _text(instant_ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=instant_ms)).isoformat(" ")[:19]
