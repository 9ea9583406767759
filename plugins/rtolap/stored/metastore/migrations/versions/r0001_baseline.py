"""The tables of leases, transactions, partitions, loaders' jobs and stored tables."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from rtolap.stored.metastore.migrations.repeatable import create_index, create_table

revision = "0001"
down_revision = None

_BY_CODE_POINT = {"charset": "utf8mb4", "collation": "utf8mb4_bin"}
_NAME = sa.String(128).with_variant(mysql.VARCHAR(128, **_BY_CODE_POINT), "mysql")
_TEXT = sa.Text().with_variant(mysql.LONGTEXT(**_BY_CODE_POINT), "mysql")
_WHOLE = sa.BigInteger()
_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _column(name: str, kind: Any, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=nullable, autoincrement=kind is _SERIAL)


def upgrade() -> None:
    create_table(
        "applied_write",
        _column("write_key", _NAME),
        _column("result", _TEXT),
        _column("written_at_ms", _WHOLE),
        sa.PrimaryKeyConstraint("write_key"),
    )
    create_index("applied_write_age", "applied_write", ("written_at_ms",))
    create_table(
        "lease",
        _column("name", _NAME),
        _column("owner", _NAME),
        _column("epoch", _WHOLE),
        _column("lease_until_ms", _WHOLE),
        sa.PrimaryKeyConstraint("name"),
    )
    create_table(
        "load_transaction",
        _column("txn_id", _SERIAL),
        _column("db", _NAME),
        _column("label", _NAME),
        _column("live", _WHOLE, nullable=True),
        _column("request_id", _NAME),
        _column("state", _NAME),
        _column("tables", _TEXT),
        _column("two_phase", _WHOLE),
        _column("keep_until_acknowledged", _WHOLE),
        _column("acknowledged", _WHOLE),
        _column("abort_pending", _WHOLE),
        _column("began_at_ms", _WHOLE),
        _column("deadline_ms", _WHOLE),
        _column("committed_at_ms", _WHOLE, nullable=True),
        _column("finished_at_ms", _WHOLE, nullable=True),
        _column("reason", _TEXT),
        _column("user_name", _NAME, nullable=True),
        sa.PrimaryKeyConstraint("txn_id"),
    )
    create_index("load_transaction_label", "load_transaction", ("db", "label", "live"), unique=True)
    create_index("load_transaction_state", "load_transaction", ("state", "db", "finished_at_ms"))
    create_index("load_transaction_abort_pending", "load_transaction", ("abort_pending",))
    create_index(
        "load_transaction_acknowledged", "load_transaction", ("acknowledged", "keep_until_acknowledged")
    )
    create_table(
        "load_partition",
        _column("db", _NAME),
        _column("tbl", _NAME),
        _column("part", _NAME),
        _column("committed_version", _WHOLE),
        _column("visible_version", _WHOLE),
        sa.PrimaryKeyConstraint("db", "tbl", "part"),
    )
    create_table(
        "load_replica",
        _column("db", _NAME),
        _column("tbl", _NAME),
        _column("part", _NAME),
        _column("bucket", _WHOLE),
        _column("node", _NAME),
        _column("version", _WHOLE),
        sa.PrimaryKeyConstraint("db", "tbl", "part", "bucket", "node"),
    )
    create_table(
        "transaction_partition",
        _column("txn_id", _WHOLE),
        _column("db", _NAME),
        _column("tbl", _NAME),
        _column("part", _NAME),
        _column("version", _WHOLE, nullable=True),
        sa.PrimaryKeyConstraint("txn_id", "tbl", "part"),
    )
    create_index(
        "transaction_partition_version",
        "transaction_partition",
        ("db", "tbl", "part", "version"),
        unique=True,
    )
    create_table(
        "load_job",
        _column("job_id", _NAME),
        _column("incarnation", _WHOLE),
        _column("db", _NAME),
        _column("tbl", _NAME),
        _column("topic", _NAME),
        _column("config", _TEXT),
        _column("state", _NAME),
        _column("reason", _TEXT),
        _column("owner", _NAME),
        _column("epoch", _WHOLE),
        _column("lease_until_ms", _WHOLE),
        sa.PrimaryKeyConstraint("job_id"),
    )
    create_table(
        "offsets_record",
        _column("job_id", _NAME),
        _column("sequence_id", _WHOLE),
        _column("epoch", _WHOLE),
        _column("label", _NAME),
        _column("start_offsets", _TEXT),
        _column("end_offsets", _TEXT),
        _column("loaded", _WHOLE),
        _column("committed", _WHOLE),
        _column("txn_id", _WHOLE, nullable=True),
        _column("row_count", _WHOLE, nullable=True),
        _column("filtered_rows", _WHOLE, nullable=True),
        _column("payload_sha256", _NAME, nullable=True),
        _column("error_url", _TEXT, nullable=True),
        _column("attempts", _WHOLE),
        _column("first_sent_at_ms", _WHOLE, nullable=True),
        _column("loaded_at_ms", _WHOLE, nullable=True),
        _column("topic_id", _NAME, nullable=True),
        sa.PrimaryKeyConstraint("job_id", "sequence_id"),
    )
    create_index("offsets_record_label", "offsets_record", ("label",), unique=True)
    create_table(
        "stored_table",
        _column("table_id", _SERIAL),
        _column("db", _NAME),
        _column("tbl", _NAME),
        _column("definition", _TEXT),
        _column("columns", _TEXT),
        _column("created_at_ms", _WHOLE),
        sa.PrimaryKeyConstraint("table_id"),
    )
    create_index("stored_table_name", "stored_table", ("db", "tbl"), unique=True)
    create_table(
        "stored_partition",
        _column("table_id", _WHOLE),
        _column("part", _NAME),
        _column("start_ms", _WHOLE),
        _column("end_ms", _WHOLE),
        sa.PrimaryKeyConstraint("table_id", "part"),
    )
    create_table(
        "pending_tablet_task",
        _column("table_id", _WHOLE),
        _column("db", _NAME),
        _column("tbl", _NAME),
        _column("part", _NAME),
        _column("node", _NAME),
        _column("kind", _NAME),
        _column("buckets", _TEXT),
        sa.PrimaryKeyConstraint("table_id", "part", "node", "kind"),
    )
    create_table(
        "storage_node",
        _column("name", _NAME),
        _column("node_id", _NAME),
        _column("address", _NAME),
        _column("free_bytes", _WHOLE),
        _column("lease_until_ms", _WHOLE),
        sa.PrimaryKeyConstraint("name"),
    )
    create_table(
        "table_change",
        _column("request_id", _NAME),
        _column("fingerprint", _NAME),
        _column("answer", _TEXT),
        _column("answered_at_ms", _WHOLE),
        sa.PrimaryKeyConstraint("request_id"),
    )
    create_index("table_change_age", "table_change", ("answered_at_ms",))
    create_table(
        "stored_database",
        _column("db", _NAME),
        _column("created_at_ms", _WHOLE),
        sa.PrimaryKeyConstraint("db"),
    )
