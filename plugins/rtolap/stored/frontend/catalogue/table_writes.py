"""Writes of a change of a table: partitions, the placement of their replicas, the pending tasks of nodes.

Statements within a write of their caller: the change and the tasks stand together, or neither does.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import blake2b

from rtolap.base.errors import RowsRefused, Unavailable
from rtolap.model.stored.partitions import WHOLE, PartitionRange, to_create, to_drop
from rtolap.model.stored.schema import DefinedTable
from rtolap.model.stored.table import StoredTable
from rtolap.stored.metastore import partitions as partition_rows
from rtolap.stored.metastore import pending_tablet_tasks as tasks
from rtolap.stored.metastore import replica_moves as moves
from rtolap.stored.metastore import tables as rows
from rtolap.stored.metastore.database import Connection
from rtolap.stored.metastore.records import Partition, PendingTabletTask

REPLICATION = 3
ON_DEMAND_MAX = 400  # partitions that one load may make


def place(
    partition: Partition,
    bucket_count: int,
    nodes: Collection[str],
    replication: int = REPLICATION,
    away: Collection[str] = (),
) -> dict[int, tuple[str, ...]]:
    """Return the nodes of each bucket: those that are up first, then those that are `away`; fewer than
    `replication` where there are no more. Raises Unavailable without one that is up. Pure.

    Rendezvous hashing: every node has a weight for a bucket, the heaviest ones keep it. Buckets spread
    evenly, and each of a bucket's replicas is on another node. Replicas do not move: where too few nodes are
    up, those that are away for a while get some as well, and their tasks when they are back.
    """
    if not nodes:
        raise Unavailable(
            f"no storage node can keep partition {partition}",
            expected="at least one that is up",
            action="start one with `rtolap storage`",
        )

    def heaviest(bucket: int) -> tuple[str, ...]:
        def weight(node: str) -> tuple[bool, bytes]:
            return node in nodes, blake2b(f"{partition}/{bucket}@{node}".encode(), digest_size=8).digest()

        return tuple(sorted(sorted({*nodes, *away}, key=weight, reverse=True)[:replication]))

    return {bucket: heaviest(bucket) for bucket in range(bucket_count)}


def buckets_by_node(placed: dict[int, tuple[str, ...]]) -> dict[str, tuple[int, ...]]:
    """Return the buckets that each node keeps, ascending."""
    by_node: dict[str, list[int]] = {}
    for bucket, nodes in sorted(placed.items()):
        for node in nodes:
            by_node.setdefault(node, []).append(bucket)
    return {node: tuple(buckets) for node, buckets in by_node.items()}


def add_partitions(
    connection: Connection,
    table: DefinedTable,
    parts: Sequence[PartitionRange],
    nodes: Collection[str],
    away: Collection[str],
    replication: int,
) -> None:
    """Add partitions. `away` is as in `place`. Raises Unavailable without a node to place them on."""
    owed: list[PendingTabletTask] = []
    for part in parts:
        by_name = Partition(table.db, table.name, part.name)
        placed = place(by_name, table.definition.buckets.count, nodes, replication, away)
        made = rows.add_partition(connection, table, part, placed)
        owed += [
            PendingTabletTask.of(table.table_id, made, node, "create", buckets)
            for node, buckets in buckets_by_node(placed).items()
        ]
    tasks.add_tasks(connection, owed)


def end_table(connection: Connection, table: DefinedTable) -> None:
    """End a table. Raises NotYet while a load that has written to it runs."""
    for part in rows.ranges(connection, table):
        end_partition(connection, table, part)
    tasks.cancel(connection, table.table_id)
    rows.delete(connection, table)


def end_partition(connection: Connection, table: DefinedTable, part: PartitionRange) -> None:
    """End a partition. Raises NotYet while a load that has written to it runs."""
    placed: dict[str, list[int]] = {}
    partition = rows.partition(connection, table, part)
    for replica in partition_rows.replicas(connection, (partition,)):
        placed.setdefault(replica.node, []).append(replica.tablet.bucket)
    for move in moves.of_partition(connection, partition):
        if move.tablet.bucket not in placed.get(move.node, ()):
            placed.setdefault(move.node, []).append(move.tablet.bucket)
        moves.delete(connection, move.tablet)
    rows.delete_partition(connection, table, part)
    tasks.cancel(connection, table.table_id, part.name)
    owed = [
        PendingTabletTask.of(table.table_id, partition, node, "drop", buckets)
        for node, buckets in placed.items()
    ]
    tasks.add_tasks(connection, owed)


def first_partitions(definition: StoredTable, now_ms: int) -> tuple[PartitionRange, ...]:
    return (WHOLE,) if definition.partitions is None else to_create(definition.partitions, now_ms, ())


def check_wanted(table: DefinedTable, parts: Sequence[PartitionRange], now_ms: int) -> None:
    """Raise RowsRefused for too many partitions at once, and for one that retention would drop at once."""
    policy = table.definition.partitions
    if len(parts) > ON_DEMAND_MAX:
        raise RowsRefused(
            f"too many new partitions of {table.definition.qualified_name} at once",
            expected=f"at most {ON_DEMAND_MAX}",
            found=len(parts),
        )
    old = () if policy is None else to_drop(policy, now_ms, parts)
    if old:
        raise RowsRefused(
            f"the time of partition {old[0].name} of {table.definition.qualified_name} is over",
            expected="rows that its retention keeps",
        )
