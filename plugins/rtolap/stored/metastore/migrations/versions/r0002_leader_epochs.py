"""The leader epochs of a batch's records: rows that are there have none, and are not compared."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from rtolap.stored.metastore.migrations.repeatable import add_column

revision = "0002"
down_revision = "0001"

_BY_CODE_POINT = {"charset": "utf8mb4", "collation": "utf8mb4_bin"}
_TEXT = sa.Text().with_variant(mysql.LONGTEXT(**_BY_CODE_POINT), "mysql")


def upgrade() -> None:
    add_column("offsets_record", sa.Column("end_epochs", _TEXT, nullable=True))
