"""Refused records of loaded batches, by what became of them, and their replays and drops; rows of loads."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from rtolap.stored.metastore.migrations.repeatable import add_column, create_index, create_table

revision = "0007"
down_revision = "0006"

_BY_CODE_POINT = {"charset": "utf8mb4", "collation": "utf8mb4_bin"}
_NAME = sa.String(128).with_variant(mysql.VARCHAR(128, **_BY_CODE_POINT), "mysql")
_TEXT = sa.Text().with_variant(mysql.LONGTEXT(**_BY_CODE_POINT), "mysql")


def upgrade() -> None:
    add_column("offsets_record", sa.Column("refused", _TEXT, nullable=True))
    add_column("load_transaction", _whole("row_count", nullable=True))
    add_column("load_transaction", sa.Column("error_url", _TEXT, nullable=True))
    create_table(
        "dead_letter_set",
        _serial("set_id"),
        sa.Column("job_id", _NAME, nullable=False),
        sa.Column("label", _NAME, nullable=False),
        sa.Column("batch_sha256", _NAME, nullable=False),
        sa.Column("state", _NAME, nullable=False),
        sa.Column("places", _TEXT, nullable=False),
        _whole("records"),
        _whole("action_id", nullable=True),
        sa.Column("detail", _TEXT, nullable=False),
        _whole("noted_at_ms"),
    )
    create_index("dead_letter_set_job", "dead_letter_set", ["job_id", "state"])
    create_table(
        "dead_letter_action",
        _serial("action_id"),
        sa.Column("job_id", _NAME, nullable=False),
        sa.Column("kind", _NAME, nullable=False),
        sa.Column("state", _NAME, nullable=False),
        sa.Column("label", _NAME, nullable=False),
        _whole("records"),
        sa.Column("who", _NAME, nullable=False),
        sa.Column("detail", _TEXT, nullable=False),
        _whole("sent_until_ms"),
        _whole("acknowledged"),
        _whole("began_at_ms"),
        _whole("finished_at_ms", nullable=True),
    )
    create_index("dead_letter_action_job", "dead_letter_action", ["job_id", "state"])


def _whole(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=nullable, autoincrement=False)


def _serial(name: str) -> sa.Column[int]:
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column(name, kind, primary_key=True, autoincrement=True)
