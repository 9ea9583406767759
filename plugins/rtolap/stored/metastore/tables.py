"""Stored tables and the ranges of their partitions: statements, each within a read or a write of its caller.

A table's id is never used twice; dropping a table and recreating it gives another one, by which nodes know
that what they hold is of the old. Within a table, partitions have incarnations for the same purpose. A
partition has its row here and in `partitions`, which has its versions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec
import sqlalchemy as sa

from rtolap.base.decoding import decode_json
from rtolap.base.errors import NotFound
from rtolap.model.stored.partitions import PartitionRange
from rtolap.model.stored.schema import DefinedTable, StoredSchema
from rtolap.model.stored.table import StoredTable
from rtolap.stored.metastore import partitions as partition_rows
from rtolap.stored.metastore.records import Partition
from rtolap.stored.metastore.schema import checked_name
from rtolap.stored.metastore.schema import load_partition as _v
from rtolap.stored.metastore.schema import stored_database as _d
from rtolap.stored.metastore.schema import stored_partition as _p
from rtolap.stored.metastore.schema import stored_table as _t


def insert(
    connection: sa.Connection, definition: StoredTable, schema: StoredSchema, now_ms: int
) -> DefinedTable:
    """Insert a table without partitions. A name that is taken is an integrity error: CommitConflict of the
    write."""
    values = {
        "db": definition.database,
        "tbl": definition.name,
        "definition": msgspec.json.encode(definition).decode(),
        "columns": msgspec.json.encode(schema).decode(),
        "created_at_ms": now_ms,
    }
    key = connection.execute(sa.insert(_t).values(values)).inserted_primary_key
    assert key is not None
    return DefinedTable(key[0], definition, schema, now_ms)


def find(connection: sa.Connection, db: str, name: str) -> DefinedTable | None:
    row = connection.execute(sa.select(_t).where(_t.c.db == db, _t.c.tbl == name)).one_or_none()
    return None if row is None else _row(row)


def get(connection: sa.Connection, db: str, name: str) -> DefinedTable:
    """Return a table. Raises NotFound."""
    row = find(connection, db, name)
    if row is None:
        raise NotFound(f"unknown table, tableName={name}", expected=f"a stored table of database {db}")
    return row


def all_tables(connection: sa.Connection) -> tuple[DefinedTable, ...]:
    """Return them by name."""
    return tuple(_row(row) for row in connection.execute(sa.select(_t).order_by(_t.c.db, _t.c.tbl)))


def databases(connection: sa.Connection) -> tuple[str, ...]:
    """Return the databases that were created, and those that tables are in; by name."""
    named = set(connection.scalars(sa.select(_d.c.db)))
    return tuple(sorted(named.union(connection.scalars(sa.select(_t.c.db).distinct()))))


def insert_database(connection: sa.Connection, db: str, now_ms: int) -> None:
    """Insert a database. A database that was created already is an integrity error: CommitConflict of the
    write."""
    connection.execute(sa.insert(_d).values(db=checked_name("database", db), created_at_ms=now_ms))


def delete_database(connection: sa.Connection, db: str) -> None:
    """Delete the database. Its tables stay, and it with them. Harmless for one that was not created."""
    connection.execute(sa.delete(_d).where(_d.c.db == db))


def change_schema(connection: sa.Connection, table: DefinedTable, schema: StoredSchema) -> None:
    here = sa.update(_t).where(_t.c.table_id == table.table_id)
    connection.execute(here.values(columns=msgspec.json.encode(schema).decode()))


def delete(connection: sa.Connection, table: DefinedTable) -> None:
    """Delete the table with its partitions. Raises NotYet while a transaction that runs has written to
    one."""
    for part in ranges(connection, table):
        delete_partition(connection, table, part)
    connection.execute(sa.delete(_t).where(_t.c.table_id == table.table_id))


def add_partition(
    connection: sa.Connection,
    table: DefinedTable,
    part: PartitionRange,
    nodes: Mapping[int, Collection[str]],
) -> Partition:
    """Add a partition at version 0, empty, and return it, with its incarnation. `nodes`: bucket -> those that
    keep a replica of it. A partition that exists already is an integrity error: CommitConflict of the write.
    """
    made = Partition(table.db, table.name, part.name, _next_incarnation(connection, table.table_id))
    partition_rows.create(connection, made, nodes)
    connection.execute(
        sa.insert(_p).values(
            table_id=table.table_id, part=part.name, start_ms=part.start_ms, end_ms=part.end_ms
        )
    )
    return made


def delete_partition(connection: sa.Connection, table: DefinedTable, part: PartitionRange) -> None:
    """Delete a partition. Raises NotYet while a transaction that runs has written to it."""
    partition_rows.delete(connection, partition(connection, table, part))
    here = (_p.c.table_id == table.table_id) & (_p.c.part == part.name)
    connection.execute(sa.delete(_p).where(here))


def ranges(connection: sa.Connection, table: DefinedTable) -> tuple[PartitionRange, ...]:
    """Return them in the order of time."""
    return ranges_of(connection, (table.table_id,)).get(table.table_id, ())


def ranges_of(connection: sa.Connection, table_ids: Iterable[int]) -> dict[int, tuple[PartitionRange, ...]]:
    """Return the partition ranges of several tables, each in the order of time."""
    ranges: dict[int, list[PartitionRange]] = {}
    rows = sa.select(_p).where(_p.c.table_id.in_(tuple(table_ids))).order_by(_p.c.start_ms)
    for row in connection.execute(rows):
        ranges.setdefault(row.table_id, []).append(PartitionRange(row.start_ms, row.end_ms, row.part))
    return {table_id: tuple(parts) for table_id, parts in ranges.items()}


class VisiblePartition(NamedTuple):
    """The version of a partition that readers may read."""

    version: int
    incarnation: int


VisibleTable = tuple[DefinedTable, dict[PartitionRange, VisiblePartition]]


def visible(
    connection: sa.Connection, names: Collection[tuple[str, str]]
) -> dict[tuple[str, str], VisibleTable]:
    """Return (database, name) -> the table, and its partitions' visible versions; without those that are not
    there.

    One statement: a transaction that becomes visible in several partitions is seen in all of them or in none.
    """
    wanted = sa.or_(*(((_t.c.db == db) & (_t.c.tbl == name)) for db, name in names))
    same = (_v.c.db == _t.c.db) & (_v.c.tbl == _t.c.tbl) & (_v.c.part == _p.c.part)
    joined = _t.outerjoin(_p, _p.c.table_id == _t.c.table_id).outerjoin(_v, same)
    columns = sa.select(_t, _p.c.part, _p.c.start_ms, _p.c.end_ms, _v.c.visible_version, _v.c.incarnation)
    visible_tables: dict[tuple[str, str], VisibleTable] = {}
    for row in connection.execute(columns.select_from(joined).where(wanted).order_by(_p.c.start_ms)):
        if (row.db, row.tbl) not in visible_tables:
            visible_tables[row.db, row.tbl] = (_row(row), {})
        if row.part is not None:
            part = PartitionRange(row.start_ms, row.end_ms, row.part)
            visible_tables[row.db, row.tbl][1][part] = VisiblePartition(row.visible_version, row.incarnation)
    return visible_tables


def partition(connection: sa.Connection, table: DefinedTable, part: PartitionRange) -> Partition:
    """Return a partition with its incarnation. Raises NotFound for one that is gone."""
    found = partition_rows.named(connection, table.db, table.name, part.name)
    if found is None:
        raise NotFound(f"partition {part.name} of {table.definition.qualified_name} is not there")
    return found


def last_incarnation(connection: sa.Connection, table_id: int) -> int:
    """Return the last incarnation that a partition of the table got; 0 where none got any."""
    return connection.scalar(sa.select(_t.c.last_incarnation).where(_t.c.table_id == table_id)) or 0


def _next_incarnation(connection: sa.Connection, table_id: int) -> int:
    next_one = sa.update(_t).where(_t.c.table_id == table_id)
    connection.execute(next_one.values(last_incarnation=_t.c.last_incarnation + 1))
    return last_incarnation(connection, table_id)  # the row is ours until the commit


def _row(row: sa.Row[tuple[object, ...]]) -> DefinedTable:
    return DefinedTable(
        row.table_id,
        decode_json(row.definition, StoredTable),
        decode_json(row.columns, StoredSchema),
        row.created_at_ms,
    )
