"""Replicas that move: the moves, what they make of replicas, and the nodes that are drained."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from rtolap.stored.metastore.migrations.repeatable import add_column, create_table

revision = "0005"
down_revision = "0004"

_BY_CODE_POINT = {"charset": "utf8mb4", "collation": "utf8mb4_bin"}
_NAME = sa.String(128).with_variant(mysql.VARCHAR(128, **_BY_CODE_POINT), "mysql")


def upgrade() -> None:
    create_table(
        "replica_move",
        sa.Column("db", _NAME, nullable=False),
        sa.Column("tbl", _NAME, nullable=False),
        sa.Column("part", _NAME, nullable=False),
        sa.Column("bucket", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("table_id", sa.BigInteger(), nullable=False),
        sa.Column("old_node", _NAME, nullable=False),
        sa.Column("node", _NAME, nullable=False),
        sa.Column("reason", _NAME, nullable=False),
        sa.Column("state", _NAME, nullable=False),
        sa.Column("fence_txn_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("db", "tbl", "part", "bucket"),
    )
    add_column("load_replica", sa.Column("role", _NAME, nullable=True))
    add_column("storage_node", sa.Column("draining", sa.BigInteger(), nullable=True))
