"""The schema, forward only: a migration is definitions that may be repeated, then the note that it is done.

A crash in between leaves definitions without the note (MySQL commits each by itself): the next start repeats
them. Programs that start at once wait for each other by a lock that ends with its connection. A schema newer
than the program is refused, because the program does not know what it would break.

A migration is never changed once it was released; `{name}` and the like are types of `dialects`.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import sqlalchemy as sa

from rtolap.base.errors import DefinitionError, Unavailable
from rtolap.ledger.dialects import Dialect

log = logging.getLogger(__name__)

_LOCK_TIMEOUT_S = 20


@dataclass(frozen=True)
class Index:
    name: str
    table: str
    columns: tuple[str, ...]
    unique: bool = False


@dataclass(frozen=True)
class Column:
    """Of a table of an earlier migration. `type` is one of `dialects`; rows that are there get NULL."""

    name: str
    table: str
    type: str


@dataclass(frozen=True)
class Migration:
    """`tables`: statements that do nothing where the table is there. MySQL has none such for indexes and
    columns."""

    version: int
    what: str
    tables: tuple[str, ...]
    indexes: tuple[Index, ...]
    columns: tuple[Column, ...] = ()


MIGRATIONS = (
    Migration(
        1,
        "leases, transactions and the versions of partitions",
        (
            """CREATE TABLE IF NOT EXISTS applied_write (
                write_key {name} NOT NULL PRIMARY KEY, result {text} NOT NULL, written_at_ms {whole} NOT NULL
            ) {options}""",
            """CREATE TABLE IF NOT EXISTS lease (
                name {name} NOT NULL PRIMARY KEY, owner {name} NOT NULL, epoch {whole} NOT NULL,
                lease_until_ms {whole} NOT NULL
            ) {options}""",
            """CREATE TABLE IF NOT EXISTS load_transaction (
                txn_id {serial}, db {name} NOT NULL, label {name} NOT NULL, live {whole},
                request_id {name} NOT NULL, state {name} NOT NULL, tables {text} NOT NULL,
                two_phase {whole} NOT NULL, keep_until_acknowledged {whole} NOT NULL,
                acknowledged {whole} NOT NULL, owes_abort {whole} NOT NULL, began_at_ms {whole} NOT NULL,
                deadline_ms {whole} NOT NULL, committed_at_ms {whole}, finished_at_ms {whole},
                reason {text} NOT NULL
            ) {options}""",
            """CREATE TABLE IF NOT EXISTS load_partition (
                db {name} NOT NULL, tbl {name} NOT NULL, part {name} NOT NULL,
                committed_version {whole} NOT NULL, visible_version {whole} NOT NULL,
                PRIMARY KEY (db, tbl, part)
            ) {options}""",
            """CREATE TABLE IF NOT EXISTS load_replica (
                db {name} NOT NULL, tbl {name} NOT NULL, part {name} NOT NULL, bucket {whole} NOT NULL,
                node {name} NOT NULL, version {whole} NOT NULL, PRIMARY KEY (db, tbl, part, bucket, node)
            ) {options}""",
            """CREATE TABLE IF NOT EXISTS transaction_partition (
                txn_id {whole} NOT NULL, db {name} NOT NULL, tbl {name} NOT NULL, part {name} NOT NULL,
                version {whole}, PRIMARY KEY (txn_id, tbl, part)
            ) {options}""",
        ),
        (
            Index("applied_write_age", "applied_write", ("written_at_ms",)),
            Index("load_transaction_label", "load_transaction", ("db", "label", "live"), unique=True),
            Index("load_transaction_state", "load_transaction", ("state", "db", "finished_at_ms")),
            Index("load_transaction_owes", "load_transaction", ("owes_abort",)),
            Index(
                "load_transaction_acknowledged",
                "load_transaction",
                ("acknowledged", "keep_until_acknowledged"),
            ),
            Index(
                "transaction_partition_version",
                "transaction_partition",
                ("db", "tbl", "part", "version"),
                unique=True,
            ),
        ),
    ),
    Migration(
        2,
        "jobs of loaders and the offsets that they have sent",
        (
            """CREATE TABLE IF NOT EXISTS load_job (
                job_id {name} NOT NULL PRIMARY KEY, incarnation {whole} NOT NULL, db {name} NOT NULL,
                tbl {name} NOT NULL, topic {name} NOT NULL, config {text} NOT NULL, state {name} NOT NULL,
                reason {text} NOT NULL, owner {name} NOT NULL, epoch {whole} NOT NULL,
                lease_until_ms {whole} NOT NULL
            ) {options}""",
            """CREATE TABLE IF NOT EXISTS offsets_record (
                job_id {name} NOT NULL, sequence_id {whole} NOT NULL, epoch {whole} NOT NULL,
                label {name} NOT NULL, start_offsets {text} NOT NULL, end_offsets {text} NOT NULL,
                loaded {whole} NOT NULL, committed {whole} NOT NULL, txn_id {whole}, row_count {whole},
                filtered_rows {whole}, payload_sha256 {name}, error_url {text}, attempts {whole} NOT NULL,
                first_sent_at_ms {whole}, loaded_at_ms {whole}, PRIMARY KEY (job_id, sequence_id)
            ) {options}""",
        ),
        (Index("offsets_record_label", "offsets_record", ("label",), unique=True),),
    ),
    Migration(
        3,
        "stored tables and the time of their partitions",
        (
            """CREATE TABLE IF NOT EXISTS stored_table (
                table_id {serial}, db {name} NOT NULL, tbl {name} NOT NULL, definition {text} NOT NULL,
                columns {text} NOT NULL, created_at_ms {whole} NOT NULL
            ) {options}""",
            """CREATE TABLE IF NOT EXISTS stored_partition (
                table_id {whole} NOT NULL, part {name} NOT NULL, start_ms {whole} NOT NULL,
                end_ms {whole} NOT NULL, PRIMARY KEY (table_id, part)
            ) {options}""",
            """CREATE TABLE IF NOT EXISTS tablet_debt (
                table_id {whole} NOT NULL, db {name} NOT NULL, tbl {name} NOT NULL, part {name} NOT NULL,
                node {name} NOT NULL, kind {name} NOT NULL, buckets {text} NOT NULL,
                PRIMARY KEY (table_id, part, node, kind)
            ) {options}""",
        ),
        (Index("stored_table_name", "stored_table", ("db", "tbl"), unique=True),),
    ),
    Migration(
        4,
        "storage nodes",
        (
            """CREATE TABLE IF NOT EXISTS storage_node (
                name {name} NOT NULL PRIMARY KEY, node_id {name} NOT NULL, address {name} NOT NULL,
                free_bytes {whole} NOT NULL, lease_until_ms {whole} NOT NULL
            ) {options}""",
        ),
        (),
    ),
    Migration(
        5,
        "changes of stored tables that have been answered",
        (
            """CREATE TABLE IF NOT EXISTS table_change (
                request_id {name} NOT NULL PRIMARY KEY, fingerprint {name} NOT NULL, answer {text} NOT NULL,
                answered_at_ms {whole} NOT NULL
            ) {options}""",
        ),
        (Index("table_change_age", "table_change", ("answered_at_ms",)),),
    ),
    Migration(
        6,
        "databases that are there without a table",
        (
            """CREATE TABLE IF NOT EXISTS stored_database (
                db {name} NOT NULL PRIMARY KEY, created_at_ms {whole} NOT NULL
            ) {options}""",
        ),
        (),
    ),
    Migration(
        7,
        "the id of the topic in which a loader's offsets count",
        (),
        (),
        (Column("topic_id", "offsets_record", "name"),),
    ),
    Migration(
        8,
        "whose transaction it is",
        (),
        (),
        (Column("user_name", "load_transaction", "name"),),
    ),
)


def migrate(connection: sa.Connection, dialect: Dialect, migrations: tuple[Migration, ...]) -> None:
    """Bring the schema to the newest of `migrations`. Raises DefinitionError for one that is newer still."""
    with connection.begin():
        if not dialect.lock_for_migration(connection, _LOCK_TIMEOUT_S):
            raise Unavailable(
                "somebody else has been changing the ledger's schema for too long",
                found=f"its lock not free within {_LOCK_TIMEOUT_S} s",
                action="try again later",
            )
        try:
            _step_forward(connection, dialect, migrations)
        finally:
            dialect.unlock_after_migration(connection)


def _step_forward(connection: sa.Connection, dialect: Dialect, migrations: tuple[Migration, ...]) -> None:
    newest = migrations[-1].version
    note = "CREATE TABLE IF NOT EXISTS ledger_schema (version {whole} NOT NULL PRIMARY KEY) {options}"
    connection.exec_driver_sql(note.format(**dialect.types))
    present = connection.exec_driver_sql("SELECT COALESCE(MAX(version), 0) FROM ledger_schema").scalar_one()
    if present > newest:
        raise DefinitionError(
            "the ledger's schema is newer than this program",
            expected=f"version {newest} or less",
            found=f"version {present}",
            action="start a newer version of the program",
        )
    for migration in migrations:
        if migration.version > present:
            for statement in migration.tables:
                connection.exec_driver_sql(statement.format(**dialect.types))
            for column in migration.columns:
                _add_column(connection, dialect, column)
            for index in migration.indexes:
                _make_index(connection, index)
            connection.execute(
                sa.text("INSERT INTO ledger_schema (version) VALUES (:version)"),
                {"version": migration.version},
            )
            # MySQL has committed each definition by itself; its note must not be lost with the next one's
            dialect.commit_migration(connection)
            log.info("ledger schema version %d: %s", migration.version, migration.what)


def _add_column(connection: sa.Connection, dialect: Dialect, column: Column) -> None:
    if column.name not in {present["name"] for present in sa.inspect(connection).get_columns(column.table)}:
        kind = dialect.types[column.type]
        connection.exec_driver_sql(f"ALTER TABLE {column.table} ADD COLUMN {column.name} {kind}")


def _make_index(connection: sa.Connection, index: Index) -> None:
    if index.name not in {present["name"] for present in sa.inspect(connection).get_indexes(index.table)}:
        kind = "UNIQUE INDEX" if index.unique else "INDEX"
        columns = ", ".join(index.columns)
        connection.exec_driver_sql(f"CREATE {kind} {index.name} ON {index.table} ({columns})")
