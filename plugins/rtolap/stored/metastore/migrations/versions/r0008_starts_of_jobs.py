"""By which start of its process a loader's job was started last: of those that are there it is not known."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from rtolap.stored.metastore.migrations.repeatable import add_column

revision = "0008"
down_revision = "0007"

_BY_CODE_POINT = {"charset": "utf8mb4", "collation": "utf8mb4_bin"}
_TEXT = sa.Text().with_variant(mysql.LONGTEXT(**_BY_CODE_POINT), "mysql")


def upgrade() -> None:
    add_column("load_job", sa.Column("started_by", _TEXT, nullable=True))
