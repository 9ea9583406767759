"""Where a storage node takes bodies of loads: nodes that are there take none until their next heartbeat."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from rtolap.stored.metastore.migrations.repeatable import add_column

revision = "0003"
down_revision = "0002"

_BY_CODE_POINT = {"charset": "utf8mb4", "collation": "utf8mb4_bin"}
_NAME = sa.String(128).with_variant(mysql.VARCHAR(128, **_BY_CODE_POINT), "mysql")


def upgrade() -> None:
    add_column("storage_node", sa.Column("body_url", _NAME, nullable=True))
