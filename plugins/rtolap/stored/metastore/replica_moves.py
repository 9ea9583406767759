"""Moves of replicas: statements, each within a read or a write of its caller. A tablet has one at a time."""

from __future__ import annotations

import sqlalchemy as sa

from rtolap.base.decoding import copied
from rtolap.stored.metastore.records import MoveReason, MoveState, Partition, ReplicaMove, Tablet
from rtolap.stored.metastore.schema import replica_move as _m


def insert(connection: sa.Connection, move: ReplicaMove) -> None:
    """Insert a move. A tablet that moves already is an integrity error: CommitConflict of the write."""
    connection.execute(sa.insert(_m).values(**_values(move)))


def all_moves(connection: sa.Connection) -> tuple[ReplicaMove, ...]:
    """Return them by tablet."""
    order = sa.select(_m).order_by(_m.c.db, _m.c.tbl, _m.c.part, _m.c.bucket)
    return tuple(_move(row) for row in connection.execute(order))


def of_partition(connection: sa.Connection, partition: Partition) -> tuple[ReplicaMove, ...]:
    rows = connection.execute(sa.select(_m).where(_in(partition)).order_by(_m.c.bucket))
    return tuple(_move(row) for row in rows)


def stands(connection: sa.Connection, move: ReplicaMove) -> bool:
    """Return True if the move is there, just as it was read."""
    row = connection.execute(sa.select(_m).where(_is(move.tablet)).with_for_update()).one_or_none()
    return row is not None and _move(row) == move


def update(connection: sa.Connection, move: ReplicaMove) -> None:
    connection.execute(sa.update(_m).where(_is(move.tablet)).values(**_values(move)))


def delete(connection: sa.Connection, tablet: Tablet) -> None:
    """Delete a tablet's move. Harmless when it is gone."""
    connection.execute(sa.delete(_m).where(_is(tablet)))


def _in(partition: Partition) -> sa.ColumnElement[bool]:
    return (_m.c.db == partition.db) & (_m.c.tbl == partition.table) & (_m.c.part == partition.name)


def _is(tablet: Tablet) -> sa.ColumnElement[bool]:
    return _in(tablet.partition) & (_m.c.bucket == tablet.bucket)


def _values(move: ReplicaMove) -> dict[str, object]:
    return {
        **move.tablet.partition.columns(),
        "bucket": move.tablet.bucket,
        "table_id": move.table_id,
        "old_node": move.old_node,
        "node": move.node,
        "reason": move.reason.value,
        "state": move.state.value,
        "fence_txn_id": move.fence_txn_id,
    }


def _move(row: sa.Row[tuple[object, ...]]) -> ReplicaMove:
    tablet = Tablet(Partition.of(row), row.bucket)
    return copied(ReplicaMove, row, tablet=tablet, reason=MoveReason(row.reason), state=MoveState(row.state))
