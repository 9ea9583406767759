"""The tables as they are now; `migrations` says how they came to be, and a test holds that both agree.

applied_write         writes that stand, by key
lease                 who owns what, in which epoch
load_transaction      one row per transaction; `live` is 1 while it holds its label, NULL once aborted,
                      so that (db, label, live) can be unique
load_partition        a partition's last assigned and last visible version, and its incarnation, which all
                      rows that name the partition have too
load_replica          which node keeps which bucket of a partition, up to which version it has it, and
                      whether a move makes it join or leave
transaction_partition which version of which partition a committed transaction is
load_job              a loader's job, with its owner
load_share            a part of a job's partitions, with its owner
load_process          a process of a job whose partitions are divided, while its lease runs
offsets_record        what a job has sent: a label, tied to the offsets of all partitions
dead_letter_set       refused records of a loaded batch that are in one state
dead_letter_action    a replay of dead letters, with its label, or a drop
stored_table          a table's definition, its columns as they are now, and the last incarnation that one
                      of its partitions got
stored_partition      which time a partition of a table stands for
pending_tablet_task   a task of a node for a table that it has not done yet
storage_node          where a storage node answers, and until when it is believed to
stored_database       a database that was created by itself, with tables or without
replica_move          a replica on its way to another node, and how far it is
table_change          the response to a change of a stored table, by the request's id
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from rtolap.base.errors import DefinitionError

# Alembic's own name for it would be that of Airflow's table, where both share a database.
VERSION_TABLE = "rtolap_schema_version"
NAME_CHARS_MAX = 128  # four of them, with a number, fit into one key of InnoDB

# Names differ by case, whatever the database's default is.
_BY_CODE_POINT = {"charset": "utf8mb4", "collation": "utf8mb4_bin"}
_NAME = sa.String(NAME_CHARS_MAX).with_variant(mysql.VARCHAR(NAME_CHARS_MAX, **_BY_CODE_POINT), "mysql")
_TEXT = sa.Text().with_variant(mysql.LONGTEXT(**_BY_CODE_POINT), "mysql")

metadata = sa.MetaData()


def _name(name: str, *, key: bool = False, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, _NAME, primary_key=key, nullable=nullable)


def _whole(name: str, *, key: bool = False, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, primary_key=key, nullable=nullable, autoincrement=False)


def _incarnation(name: str = "incarnation") -> sa.Column[int]:
    """Return the number of a partition among those of its table. Rows of before have 0."""
    return sa.Column(name, sa.BigInteger, nullable=False, server_default="0", autoincrement=False)


def _text(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, _TEXT, nullable=nullable)


def _serial(name: str) -> sa.Column[int]:
    """Return a number that the database gives and never gives again."""
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite counts in no other type
    return sa.Column(name, kind, primary_key=True, autoincrement=True)


applied_write = sa.Table(
    "applied_write",
    metadata,
    _name("write_key", key=True),
    _text("result"),
    _whole("written_at_ms"),
    sa.Index("applied_write_age", "written_at_ms"),
)

lease = sa.Table(
    "lease", metadata, _name("name", key=True), _name("owner"), _whole("epoch"), _whole("lease_until_ms")
)

load_transaction = sa.Table(
    "load_transaction",
    metadata,
    _serial("txn_id"),
    _name("db"),
    _name("label"),
    _whole("live", nullable=True),
    _name("request_id"),
    _name("state"),
    _text("tables"),
    _whole("two_phase"),
    _whole("keep_until_acknowledged"),
    _whole("acknowledged"),
    _whole("abort_pending"),
    _whole("began_at_ms"),
    _whole("deadline_ms"),
    _whole("committed_at_ms", nullable=True),
    _whole("finished_at_ms", nullable=True),
    _text("reason"),
    _name("user_name", nullable=True),
    _whole("row_count", nullable=True),
    _text("error_url", nullable=True),
    sa.Index("load_transaction_label", "db", "label", "live", unique=True),
    sa.Index("load_transaction_state", "state", "db", "finished_at_ms"),
    sa.Index("load_transaction_abort_pending", "abort_pending"),
    sa.Index("load_transaction_acknowledged", "acknowledged", "keep_until_acknowledged"),
)

load_partition = sa.Table(
    "load_partition",
    metadata,
    _name("db", key=True),
    _name("tbl", key=True),
    _name("part", key=True),
    _whole("committed_version"),
    _whole("visible_version"),
    _incarnation(),
)

load_replica = sa.Table(
    "load_replica",
    metadata,
    _name("db", key=True),
    _name("tbl", key=True),
    _name("part", key=True),
    _whole("bucket", key=True),
    _name("node", key=True),
    _whole("version"),
    _name("role", nullable=True),
    _incarnation(),
)

transaction_partition = sa.Table(
    "transaction_partition",
    metadata,
    _whole("txn_id", key=True),
    _name("db"),
    _name("tbl", key=True),
    _name("part", key=True),
    _whole("version", nullable=True),
    _incarnation(),
    sa.Index("transaction_partition_version", "db", "tbl", "part", "version", unique=True),
)

load_job = sa.Table(
    "load_job",
    metadata,
    _name("job_id", key=True),
    _whole("incarnation"),
    _name("db"),
    _name("tbl"),
    _name("topic"),
    _text("config"),
    _name("state"),
    _text("reason"),
    _name("owner"),
    _whole("epoch"),
    _whole("lease_until_ms"),
    _whole("shares", nullable=True),
    _whole("processes", nullable=True),
    _text("started_by", nullable=True),
)

load_share = sa.Table(
    "load_share",
    metadata,
    _name("share_id", key=True),
    _name("job_id"),
    _whole("number"),
    _whole("assigned", nullable=True),
    _name("owner"),
    _whole("epoch"),
    _whole("lease_until_ms"),
    sa.Index("load_share_job", "job_id", "number", unique=True),
)

load_process = sa.Table(
    "load_process",
    metadata,
    _name("process_id", key=True),
    _name("job_id"),
    _whole("number"),
    _name("owner"),
    _whole("epoch"),
    _whole("lease_until_ms"),
    sa.Index("load_process_job", "job_id", "number", unique=True),
)

offsets_record = sa.Table(
    "offsets_record",
    metadata,
    _name("job_id", key=True),
    _whole("sequence_id", key=True),
    _whole("epoch"),
    _name("label"),
    _text("start_offsets"),
    _text("end_offsets"),
    _whole("loaded"),
    _whole("committed"),
    _whole("txn_id", nullable=True),
    _whole("row_count", nullable=True),
    _whole("filtered_rows", nullable=True),
    _name("payload_sha256", nullable=True),
    _text("error_url", nullable=True),
    _whole("attempts"),
    _whole("first_sent_at_ms", nullable=True),
    _whole("loaded_at_ms", nullable=True),
    _name("topic_id", nullable=True),
    _text("end_epochs", nullable=True),
    _text("refused", nullable=True),
    sa.Index("offsets_record_label", "label", unique=True),
)

dead_letter_set = sa.Table(
    "dead_letter_set",
    metadata,
    _serial("set_id"),
    _name("job_id"),
    _name("label"),
    _name("batch_sha256"),
    _name("state"),
    _text("places"),
    _whole("records"),
    _whole("action_id", nullable=True),
    _text("detail"),
    _whole("noted_at_ms"),
    sa.Index("dead_letter_set_job", "job_id", "state"),
)

dead_letter_action = sa.Table(
    "dead_letter_action",
    metadata,
    _serial("action_id"),
    _name("job_id"),
    _name("kind"),
    _name("state"),
    _name("label"),
    _whole("records"),
    _name("who"),
    _text("detail"),
    _whole("sent_until_ms"),
    _whole("acknowledged"),
    _whole("began_at_ms"),
    _whole("finished_at_ms", nullable=True),
    sa.Index("dead_letter_action_job", "job_id", "state"),
)

stored_table = sa.Table(
    "stored_table",
    metadata,
    _serial("table_id"),
    _name("db"),
    _name("tbl"),
    _text("definition"),
    _text("columns"),
    _whole("created_at_ms"),
    _incarnation("last_incarnation"),
    sa.Index("stored_table_name", "db", "tbl", unique=True),
)

stored_partition = sa.Table(
    "stored_partition",
    metadata,
    _whole("table_id", key=True),
    _name("part", key=True),
    _whole("start_ms"),
    _whole("end_ms"),
)

pending_tablet_task = sa.Table(
    "pending_tablet_task",
    metadata,
    _whole("table_id", key=True),
    _name("db"),
    _name("tbl"),
    _name("part", key=True),
    _name("node", key=True),
    _name("kind", key=True),
    _text("buckets"),
    _incarnation(),
)

storage_node = sa.Table(
    "storage_node",
    metadata,
    _name("name", key=True),
    _name("node_id"),
    _name("address"),
    _whole("free_bytes"),
    _whole("lease_until_ms"),
    _name("body_url", nullable=True),
    _whole("draining", nullable=True),
)

replica_move = sa.Table(
    "replica_move",
    metadata,
    _name("db", key=True),
    _name("tbl", key=True),
    _name("part", key=True),
    _whole("bucket", key=True),
    _whole("table_id"),
    _name("old_node"),
    _name("node"),
    _name("reason"),
    _name("state"),
    _whole("fence_txn_id"),
    _incarnation(),
)

stored_database = sa.Table("stored_database", metadata, _name("db", key=True), _whole("created_at_ms"))

table_change = sa.Table(
    "table_change",
    metadata,
    _name("request_id", key=True),
    _name("fingerprint"),
    _text("answer"),
    _whole("answered_at_ms"),
    sa.Index("table_change_age", "answered_at_ms"),
)


def values(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a row's mapping with plain names, as decoders want them."""
    return {str(name): value for name, value in row.items()}


def checked_name(field: str, name: str) -> str:
    """Return the name.

    Raises DefinitionError for one that servers would treat differently: MySQL ignores blanks at the end when
    it compares, and SQLite keeps any length.
    """
    if not name or name != name.strip() or len(name) > NAME_CHARS_MAX or "\0" in name:
        raise DefinitionError(
            f"the {field} cannot be kept",
            expected=f"1 to {NAME_CHARS_MAX} characters, no blank at either end",
            found=repr(name[: NAME_CHARS_MAX + 10]),
        )
    return name
