"""Shares of a loader's job and its processes: jobs that are there are not divided."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from rtolap.stored.metastore.migrations.repeatable import add_column, create_index, create_table

revision = "0004"
down_revision = "0003"

_BY_CODE_POINT = {"charset": "utf8mb4", "collation": "utf8mb4_bin"}
_NAME = sa.String(128).with_variant(mysql.VARCHAR(128, **_BY_CODE_POINT), "mysql")


def upgrade() -> None:
    add_column("load_job", sa.Column("shares", sa.BigInteger, nullable=True))
    add_column("load_job", sa.Column("processes", sa.BigInteger, nullable=True))
    create_table(
        "load_share",
        sa.Column("share_id", _NAME, primary_key=True, nullable=False),
        sa.Column("job_id", _NAME, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("assigned", sa.BigInteger, nullable=True),
        sa.Column("owner", _NAME, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("lease_until_ms", sa.BigInteger, nullable=False),
    )
    create_index("load_share_job", "load_share", ["job_id", "number"], unique=True)
    create_table(
        "load_process",
        sa.Column("process_id", _NAME, primary_key=True, nullable=False),
        sa.Column("job_id", _NAME, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("owner", _NAME, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("lease_until_ms", sa.BigInteger, nullable=False),
    )
    create_index("load_process_job", "load_process", ["job_id", "number"], unique=True)
