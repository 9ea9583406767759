"""Incarnations of partitions: those that are there have 0, and the next of a table is 1."""

from __future__ import annotations

import sqlalchemy as sa

from rtolap.stored.metastore.migrations.repeatable import add_column

revision = "0006"
down_revision = "0005"

_NAMING = ("load_partition", "load_replica", "transaction_partition", "pending_tablet_task", "replica_move")


def upgrade() -> None:
    for table in _NAMING:
        add_column(table, _column("incarnation"))
    add_column("stored_table", _column("last_incarnation"))


def _column(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=False, server_default="0")
