"""Versions of partitions and who has them: statements, each within a read or a write of its caller."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import sqlalchemy as sa

from rtolap.base.errors import NotFound, NotYet
from rtolap.stored.metastore.records import RUNNING, Partition, PartitionVersions, Replica, Tablet
from rtolap.stored.metastore.schema import checked_name
from rtolap.stored.metastore.schema import load_partition as _p
from rtolap.stored.metastore.schema import load_replica as _r
from rtolap.stored.metastore.schema import load_transaction as _t
from rtolap.stored.metastore.schema import transaction_partition as _parts

_AT_ONCE = 1000


def create(connection: sa.Connection, partition: Partition, nodes: Mapping[int, Collection[str]]) -> None:
    """Create a partition at version 0, empty. `nodes`: bucket -> those that keep a replica of it. A partition
    that exists already is an integrity error: CommitConflict of the write."""
    named = (("database", partition.db), ("table", partition.table), ("partition", partition.name))
    for field, name in named:
        checked_name(field, name)
    key = partition.columns()
    connection.execute(sa.insert(_p).values(**key, committed_version=0, visible_version=0))
    rows = [
        {**key, "bucket": bucket, "node": checked_name("node", node), "version": 0}
        for bucket, replica_nodes in nodes.items()
        for node in replica_nodes
    ]
    connection.execute(sa.insert(_r), rows)


def delete(connection: sa.Connection, partition: Partition) -> None:
    """Delete the partition with all that names it: one of the same name starts over. Raises NotYet while a
    transaction that runs has written to it."""
    written = sa.select(_t.c.txn_id).join(_parts, _parts.c.txn_id == _t.c.txn_id)
    running = connection.scalars(written.where(_is(_parts, partition), _t.c.state.in_(RUNNING))).all()
    if running:
        raise NotYet(f"partition {partition} cannot be dropped", found=f"running transactions {running}")
    connection.execute(sa.delete(_parts).where(_is(_parts, partition)))
    connection.execute(sa.delete(_r).where(_is(_r, partition)))
    connection.execute(sa.delete(_p).where(_is(_p, partition)))


def named(connection: sa.Connection, db: str, table: str, name: str) -> Partition | None:
    """Return the partition that has this name now."""
    here = (_p.c.db == db) & (_p.c.tbl == table) & (_p.c.part == name)
    row = connection.execute(sa.select(_p).where(here)).one_or_none()
    return None if row is None else Partition.of(row)


def of_table(connection: sa.Connection, db: str, table: str) -> frozenset[Partition]:
    rows = connection.execute(sa.select(_p).where(_p.c.db == db, _p.c.tbl == table))
    return frozenset(Partition.of(row) for row in rows)


def versions(connection: sa.Connection, partition: Partition) -> PartitionVersions | None:
    """Return the versions of a partition; None where it was dropped, whatever has its name now."""
    columns = sa.select(_p.c.committed_version, _p.c.visible_version)
    row = connection.execute(columns.where(_is(_p, partition))).one_or_none()
    return None if row is None else PartitionVersions(row.committed_version, row.visible_version)


def assign(connection: sa.Connection, partition: Partition) -> int:
    """Return the partition's next version, its caller's for ever.

    Raises NotFound for one that was dropped.
    """
    next_one = sa.update(_p).where(_is(_p, partition)).values(committed_version=_p.c.committed_version + 1)
    if connection.execute(next_one).rowcount != 1:
        raise NotFound(f"partition {partition} is not there")
    assigned = versions(connection, partition)  # its row is ours until the commit
    assert assigned is not None
    return assigned.committed


def make_visible(connection: sa.Connection, partition: Partition, version: int) -> bool:
    """Make the version visible. Return False unless it is the next one to become visible."""
    step = sa.update(_p).where(_is(_p, partition), _p.c.visible_version == version - 1)
    return connection.execute(step.values(visible_version=version)).rowcount == 1


def replicas(connection: sa.Connection, partitions: Iterable[Partition]) -> tuple[Replica, ...]:
    replica_rows = []
    for partition in partitions:
        rows = connection.execute(sa.select(_r).where(_is(_r, partition)))
        replica_rows += [_replica(row) for row in rows]
    return tuple(sorted(replica_rows))


def replicas_of(connection: sa.Connection, db: str, table: str) -> tuple[Replica, ...]:
    """Return the replicas of all of a table's partitions, in one statement."""
    rows = connection.execute(sa.select(_r).where(_r.c.db == db, _r.c.tbl == table))
    return tuple(sorted(_replica(row) for row in rows))


def on_nodes(connection: sa.Connection, nodes: Collection[str]) -> tuple[Replica, ...]:
    """Return all replicas with any version that these nodes are to have."""
    rows = connection.execute(sa.select(_r).where(_r.c.node.in_(tuple(nodes)), _r.c.version > 0))
    return tuple(sorted(_replica(row) for row in rows))


def versions_of(connection: sa.Connection, db: str, table: str) -> dict[str, PartitionVersions]:
    """Return the versions of all of a table's partitions, by name, in one statement."""
    rows = connection.execute(sa.select(_p).where(_p.c.db == db, _p.c.tbl == table))
    return {row.part: PartitionVersions(row.committed_version, row.visible_version) for row in rows}


def databases(connection: sa.Connection) -> tuple[str, ...]:
    return tuple(connection.scalars(sa.select(_p.c.db).distinct()))


def nodes_of(connection: sa.Connection, db: str, tables: Collection[str]) -> tuple[str, ...]:
    """Return all that keep anything of these tables."""
    storing = sa.select(_r.c.node).where(_r.c.db == db, _r.c.tbl.in_(tables)).distinct()
    return tuple(sorted(connection.scalars(storing)))


def reached(
    connection: sa.Connection, node: str, partition: Partition, buckets: Collection[int], version: int
) -> None:
    """Note that the node has these buckets of the partition up to that version, which never falls."""
    here = (_r.c.node == node) & _r.c.bucket.in_(buckets) & (_r.c.version < version)
    connection.execute(sa.update(_r).where(_is(_r, partition), here).values(version=version))


def join(connection: sa.Connection, tablet: Tablet, node: str, version: int) -> None:
    """Add a replica that joins the others."""
    row = {**tablet.partition.columns(), "bucket": tablet.bucket}
    name = checked_name("node", node)
    connection.execute(sa.insert(_r).values(**row, node=name, version=version, role="joining"))


def set_role(connection: sa.Connection, tablet: Tablet, node: str, role: str) -> None:
    """Set what a move makes of a replica; empty: it is one like the others."""
    connection.execute(sa.update(_r).where(_is_replica(tablet, node)).values(role=role or None))


def remove(connection: sa.Connection, tablet: Tablet, node: str) -> None:
    """Remove a replica. Harmless when it is gone."""
    connection.execute(sa.delete(_r).where(_is_replica(tablet, node)))


def all_replicas(connection: sa.Connection) -> tuple[Replica, ...]:
    return tuple(sorted(_replica(row) for row in connection.execute(sa.select(_r))))


def all_versions(connection: sa.Connection) -> dict[Partition, PartitionVersions]:
    """Return the versions of all partitions of all tables."""
    return {
        Partition.of(row): PartitionVersions(row.committed_version, row.visible_version)
        for row in connection.execute(sa.select(_p))
    }


def lagging(connection: sa.Connection) -> tuple[tuple[Replica, int], ...]:
    """Return (replica, its partition's visible version) where the replica is behind; the nodes by turns, so
    that one with very many does not hide those of others."""
    same = (_r.c.db == _p.c.db) & (_r.c.tbl == _p.c.tbl) & (_r.c.part == _p.c.part)
    same &= _r.c.incarnation == _p.c.incarnation
    order = (_r.c.db, _r.c.tbl, _r.c.part, _r.c.bucket)
    turn = sa.func.row_number().over(partition_by=_r.c.node, order_by=order)
    behind = sa.select(_r, _p.c.visible_version).join(_p, same).where(_r.c.version < _p.c.visible_version)
    lagging_rows = connection.execute(behind.order_by(turn, _r.c.node).limit(_AT_ONCE))
    return tuple((_replica(row), row.visible_version) for row in lagging_rows)


def _is(table: sa.Table, partition: Partition) -> sa.ColumnElement[bool]:
    """Return the condition for rows of this very partition, not of another one that has its name."""
    columns = table.c
    named = (columns.db == partition.db) & (columns.tbl == partition.table) & (columns.part == partition.name)
    return named & (columns.incarnation == partition.incarnation)


def _replica(row: sa.Row[tuple[object, ...]]) -> Replica:
    tablet = Tablet(Partition.of(row), row.bucket)
    return Replica(tablet, row.node, row.version, row.role or "")


def _is_replica(tablet: Tablet, node: str) -> sa.ColumnElement[bool]:
    return _is(_r, tablet.partition) & (_r.c.bucket == tablet.bucket) & (_r.c.node == node)
