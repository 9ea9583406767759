"""Tables read from the ledger at one moment: as loads see them, and as read views.

Every endpoint answers, master or not. Who has a version is read after the versions; a replica's never falls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rtolap.base.decoding import copied
from rtolap.base.errors import NotFound
from rtolap.model.stored.partitions import PartitionRange
from rtolap.model.stored.schema import DefinedTable
from rtolap.protocols.stored_tables.messages import (
    LoadedVersions,
    LoadedVersionsRequest,
    PartitionInfo,
    PartitionView,
    ReadView,
    TableName,
    TabletView,
    TableView,
)
from rtolap.stored.metastore import partitions as partition_rows
from rtolap.stored.metastore import tables as rows
from rtolap.stored.metastore import transactions
from rtolap.stored.metastore.database import Connection, Ledger
from rtolap.stored.metastore.records import Partition, Replica
from rtolap.stored.stream_load.table_entry import TableEntry

VERSIONS_MAX = 1000  # whose loads are looked up at once; of more it is not said how many rows they have


def read_entry(connection: Connection, db: str, name: str) -> TableEntry:
    table = rows.get(connection, db, name)
    parts = rows.ranges(connection, table)
    return copied(
        TableEntry, table, partitions=parts, replicas=partition_rows.replicas_of(connection, db, name)
    )


class ReadViews:
    """The visible version of every partition of some tables, and the nodes that have it.

    `addresses`: node -> its Flight address, of those that live, read with the given connection.
    """

    def __init__(self, ledger: Ledger, addresses: Callable[[Connection], Mapping[str, str]]) -> None:
        self._ledger = ledger
        self._addresses = addresses

    def read_view(self, names: Sequence[TableName]) -> ReadView:
        """Return the view that one statement reads. Raises NotFound."""

        def work(connection: Connection) -> ReadView:
            visible = rows.visible(connection, [(name.db, name.name) for name in names])
            views = []
            for name in dict.fromkeys(names):
                if (name.db, name.name) not in visible:
                    raise NotFound(f"unknown table, tableName={name.name}", expected=f"one of {name.db}")
                table, versions = visible[name.db, name.name]
                replicas = partition_rows.replicas_of(connection, name.db, name.name)
                views.append(_view(table, versions, replicas))
            return ReadView(tuple(views), dict(self._addresses(connection)))

        return self._ledger.read("take a read view", work)

    def partitions(self, name: TableName) -> tuple[PartitionInfo, ...]:
        """Return the partitions in the order of time. Raises NotFound."""

        def work(connection: Connection) -> tuple[PartitionInfo, ...]:
            table = rows.get(connection, name.db, name.name)
            versions = partition_rows.versions_of(connection, name.db, name.name)
            replicas = partition_rows.replicas_of(connection, name.db, name.name)
            return tuple(
                PartitionInfo(
                    range=part,
                    visible_version=versions[part.name].visible,
                    committed_version=versions[part.name].committed,
                    buckets=table.definition.buckets.count,
                    replicas=sum(replica.tablet.partition.name == part.name for replica in replicas),
                )
                for part in rows.ranges(connection, table)
                if part.name in versions  # one that was dropped between the two statements is gone
            )

        return self._ledger.read("read partitions", work)

    def loaded_versions(self, name: TableName, known: LoadedVersionsRequest) -> LoadedVersions:
        """Return the visible versions, and the rows of the loads beyond those that are known. NotFound."""

        def work(connection: Connection) -> LoadedVersions:
            found = rows.visible(connection, [(name.db, name.name)])
            if (name.db, name.name) not in found:
                raise NotFound(f"unknown table, tableName={name.name}", expected=f"one of {name.db}")
            _, visible = found[name.db, name.name]
            return LoadedVersions(
                versions={part.name: seen.version for part, seen in visible.items()},
                incarnations={part.name: seen.incarnation for part, seen in visible.items()},
                rows=_rows_beyond(connection, name, known, visible),
            )

        return self._ledger.read("read versions", work)


def _rows_beyond(
    connection: Connection,
    name: TableName,
    known: LoadedVersionsRequest,
    visible: Mapping[PartitionRange, rows.VisiblePartition],
) -> int | None:
    """Return the rows of the loads of all versions beyond the known ones; None where one of them is not known
    any more, or a partition was made again."""
    ranges: dict[Partition, tuple[int, int]] = {}
    for part, seen in visible.items():
        after = known.after.get(part.name, 0)
        if seen.version <= after:
            continue
        if part.name in known.after and known.incarnations.get(part.name) != seen.incarnation:
            return None
        ranges[Partition(name.db, name.name, part.name, seen.incarnation)] = (after, seen.version)
    if sum(until - after for after, until in ranges.values()) > VERSIONS_MAX:
        return None
    return transactions.rows_of_versions(connection, ranges)


def _view(
    table: DefinedTable,
    versions: Mapping[PartitionRange, rows.VisiblePartition],
    replicas: Sequence[Replica],
) -> TableView:
    """Return the view of a table. A partition that was made again after its version was read has no nodes."""
    holders: dict[tuple[str, int], list[str]] = {}
    visible = {part.name: version for part, version in versions.items()}
    for replica in replicas:
        partition = replica.tablet.partition
        seen = visible.get(partition.name)
        if seen is not None and seen.incarnation == partition.incarnation:
            holding = holders.setdefault((partition.name, replica.tablet.bucket), [])
            if replica.version >= seen.version:
                holding.append(replica.node)
    parts: dict[str, list[TabletView]] = {part.name: [] for part in versions}
    for (name, bucket), nodes in sorted(holders.items()):
        parts[name].append(TabletView(bucket, tuple(nodes)))
    partitions = tuple(
        PartitionView(part, seen.version, tuple(parts[part.name]), seen.incarnation)
        for part, seen in sorted(versions.items())
    )
    return TableView(table.table_id, table.db, table.name, table.schema, partitions)
