"""The small tables that answer SHOW and DESCRIBE."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime

import pyarrow as pa

from rtolap.base.errors import NotFound, QueryError, UnknownDatabase
from rtolap.model.stored.create_table_text import create_table_text
from rtolap.protocols.stored_tables.messages import TableName, TransactionInfo
from rtolap.query.cancel import Cancellation
from rtolap.query.catalogue import DATABASE, INFORMATION_SCHEMA, QueryCatalogue, unknown_table
from rtolap.query.described import described
from rtolap.query.information_schema import INFORMATION_TABLES, index_rows
from rtolap.query.sql.dialect import quoted_for_ansi
from rtolap.query.statement_service import QueryService
from rtolap.query.statements.shows import Show, ShowKind
from rtolap.query.statements.sql_session import SqlSession

# SHOW KEYS and the columns of information_schema.STATISTICS that it shows
_KEY_HEAD = (
    *("Table", "Non_unique", "Key_name", "Seq_in_index", "Column_name", "Collation", "Cardinality"),
    *("Sub_part", "Packed", "Null", "Index_type", "Comment", "Index_comment", "Visible", "Expression"),
)
_KEY_SOURCES = (
    *("NON_UNIQUE", "INDEX_NAME", "SEQ_IN_INDEX", "COLUMN_NAME", "COLLATION", "CARDINALITY"),
    *("SUB_PART", "PACKED", "NULLABLE", "INDEX_TYPE", "COMMENT", "INDEX_COMMENT", "IS_VISIBLE", "EXPRESSION"),
)
ShownRows = tuple[Sequence[str], list[tuple[object, ...]]]
_ALWAYS: Mapping[ShowKind, ShownRows] = {
    "engines": (("Engine", "Support", "Comment"), [("rtolap", "DEFAULT", "cubes over Kafka, stored tables")]),
    "charsets": (
        ("Charset", "Description", "Default collation", "Maxlen"),
        [("utf8mb4", "UTF-8 Unicode", "utf8mb4_bin", 4)],
    ),
    "collations": (
        ("Collation", "Charset", "Id", "Default", "Compiled", "Sortlen"),
        [("utf8mb4_bin", "utf8mb4", 46, "Yes", "Yes", 1)],
    ),
    "nothing": (("Name",), []),
}


class Shows:
    """The answers of SHOW. They are thread-safe. `processes` lists the sessions that this server has."""

    def __init__(self, service: QueryService, processes: Callable[[], Iterable[SqlSession]]) -> None:
        self._service = service
        self._processes = processes
        self._answers: dict[ShowKind, Callable[[Show, SqlSession], ShownRows]] = {
            "databases": self._databases,
            "tables": self._tables,
            "table status": self._table_status,
            "columns": self._columns,
            "create": self._create,
            "keys": self._keys,
            "partitions": self._partitions,
            "transaction": self._transactions,
            "variables": self._variables,
            "status": self._status,
            "warnings": self._warnings,
            "errors": self._warnings,
            "processlist": self._processlist,
            "grants": self._grants,
        }

    def answer(self, show: Show, session: SqlSession, cancellation: Cancellation | None = None) -> pa.Table:
        """Return the rows of a SHOW.

        Args:
            cancellation: ends the evaluation of its condition, which takes a turn as a query does.
        """
        names, rows = _ALWAYS.get(show.kind) or self._answers[show.kind](show, session)
        table = _table(names, rows)
        return self._service.filtered(table, show.condition, cancellation) if show.condition else table

    def _catalogue(self) -> QueryCatalogue:
        """Return the definitions as of now: another query service may just have changed them."""
        return self._service.catalogue(fresh=True)

    def _relation(self, show: Show, session: SqlSession) -> tuple[str, QueryCatalogue]:
        """Return the relation that is meant, by name, database and the session's, and the catalogue."""
        database = show.database or session.database or DATABASE
        name = (show.name or "").strip("`")
        catalogue = self._catalogue()
        spelled = _spelled(catalogue, database, name)
        if spelled is None:
            raise unknown_table(name, catalogue)
        return spelled, catalogue

    def _databases(self, show: Show, session: SqlSession) -> ShownRows:
        return ("Database",), [(name,) for name in (INFORMATION_SCHEMA, *self._catalogue().databases())]

    def _in_database(self, show: Show, session: SqlSession) -> tuple[str, dict[str, str], QueryCatalogue]:
        """Return a database, (name -> relation) of its tables, and the catalogue that has them."""
        database = (show.database or session.database or DATABASE).lower()
        catalogue = self._catalogue()
        if database == INFORMATION_SCHEMA:
            return database, {name: name for name in sorted(INFORMATION_TABLES)}, catalogue
        if database not in catalogue.databases():
            known = ", ".join(catalogue.databases())
            raise UnknownDatabase(f"unknown database {database!r}", expected=f"one of {known}")
        return database, catalogue.in_database(database), catalogue

    def _tables(self, show: Show, session: SqlSession) -> ShownRows:
        database, tables, _ = self._in_database(show, session)
        head = f"Tables_in_{database}"
        if show.is_full:
            return (head, "Table_type"), [(name, "BASE TABLE") for name in sorted(tables)]
        return (head,), [(name,) for name in sorted(tables)]

    def _table_status(self, show: Show, session: SqlSession) -> ShownRows:
        _, tables, catalogue = self._in_database(show, session)
        known = catalogue.all_names()
        return ("Name", "Engine", "Comment"), [
            (name, "rtolap", catalogue.comment(key)) for name, key in tables.items() if key in known
        ]

    def _columns(self, show: Show, session: SqlSession) -> ShownRows:
        relation, catalogue = self._relation(show, session)
        columns = described(catalogue, relation)
        if show.is_full:
            head = ("Field", "Type", "Collation", "Null", "Key", "Default", "Extra", "Privileges", "Comment")
            return head, [
                (
                    *(column.name, column.type_text),
                    "utf8mb4_bin" if column.column_type.kind == "string" else None,
                    *(column.nullable, column.key, column.default, column.extra, "select", column.comment),
                )
                for column in columns
            ]
        return ("Field", "Type", "Null", "Key", "Default", "Extra"), [
            (column.name, column.type_text, column.nullable, column.key, column.default, column.extra)
            for column in columns
        ]

    def _create(self, show: Show, session: SqlSession) -> ShownRows:
        name, text = _create_text(*self._relation(show, session))
        return ("Table", "Create Table"), [(name, quoted_for_ansi(text) if session.has_ansi_quotes else text)]

    def _partitions(self, show: Show, session: SqlSession) -> ShownRows:
        relation, catalogue = self._relation(show, session)
        if relation not in catalogue.stored:
            raise QueryError(f"{relation} has no partitions", expected="a stored table")
        table = catalogue.stored[relation]
        head = ("PartitionName", "VisibleVersion", "CommittedVersion", "Start", "End", "Buckets", "Replicas")
        rows: list[tuple[object, ...]] = []
        for part in self._service.definitions.partitions(TableName(table.db, table.name)):
            bounded = part.range.start_ms > -(1 << 62)
            rows.append(
                (
                    part.range.name,
                    str(part.visible_version),
                    str(part.committed_version),
                    _instant(part.range.start_ms) if bounded else None,
                    _instant(part.range.end_ms) if bounded else None,
                    str(part.buckets),
                    str(part.replicas),
                )
            )
        return head, rows

    def _transactions(self, show: Show, session: SqlSession) -> ShownRows:
        head = (
            *("TransactionId", "Label", "TransactionStatus", "PrepareTime", "CommitTime", "FinishTime"),
            *("Reason", "Tables"),
        )
        database = show.database or session.database
        if database is None:
            raise QueryError("no database is selected", action="write SHOW TRANSACTION FROM database WHERE …")
        definitions = self._service.definitions
        if show.is_pattern:
            return head, [_transaction(each) for each in definitions.transactions(database, show.label)]
        try:
            return head, [_transaction(definitions.transaction(database, show.label))]
        except NotFound:
            return head, []

    def _keys(self, show: Show, session: SqlSession) -> ShownRows:
        relation, catalogue = self._relation(show, session)
        table = catalogue.stored[relation].name if relation in catalogue.stored else relation
        return _KEY_HEAD, [
            (table, *(row.get(source) for source in _KEY_SOURCES)) for row in index_rows(catalogue, relation)
        ]

    def _variables(self, show: Show, session: SqlSession) -> ShownRows:
        return ("Variable_name", "Value"), [(name, str(session.variable(name))) for name in session.variables]

    def _status(self, show: Show, session: SqlSession) -> ShownRows:
        connected = sum(1 for _ in self._processes())
        return ("Variable_name", "Value"), [
            ("Ssl_cipher", session.tls_cipher),
            ("Threads_connected", str(connected)),
        ]

    def _warnings(self, show: Show, session: SqlSession) -> ShownRows:
        rows: list[tuple[object, ...]] = [*session.warnings]
        if show.kind == "errors":
            rows = [row for row in rows if row[0] == "Error"]
        if show.is_count:
            name = f"@@session.{show.kind.removesuffix('s')}_count"
            return (name,), [(len(rows),)]
        return ("Level", "Code", "Message"), rows

    def _processlist(self, show: Show, session: SqlSession) -> ShownRows:
        rows: list[tuple[object, ...]] = [
            (
                s.connection_id,
                s.user,
                s.host,
                s.database,
                "Query" if s.running else "Sleep",
                s.progress(),
                s.running,
            )
            for s in self._processes()
            if s.user == session.user
        ]
        return ("Id", "User", "Host", "db", "Command", "State", "Info"), rows

    def _grants(self, show: Show, session: SqlSession) -> ShownRows:
        return (f"Grants for {session.user}",), [(f"GRANT SELECT ON `{DATABASE}`.* TO `{session.user}`",)]


def _create_text(name: str, catalogue: QueryCatalogue) -> tuple[str, str]:
    """Return the table's name, and the text."""
    if name in catalogue.stored:
        table = catalogue.stored[name]
        return table.name, create_table_text(table.definition, table.schema)
    lines = ",\n".join(
        f"  `{column.name}` {column.type_text} DEFAULT NULL" for column in described(catalogue, name)
    )
    text = (
        f"CREATE TABLE `{name}` (\n{lines}\n) ENGINE=rtolap DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin "
        f"COMMENT='{catalogue.comment(name)}'"
    )
    return name, text


def _spelled(catalogue: QueryCatalogue, database: str, name: str) -> str | None:
    if database.lower() in (DATABASE, INFORMATION_SCHEMA):
        return catalogue.spelled(name)
    return catalogue.spelled_stored(database, name)


def _table(names: Sequence[str], rows: list[tuple[object, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    arrays = []
    for values in columns:
        whole = any(isinstance(value, int) for value in values)
        arrays.append(pa.array(list(values), pa.int64() if whole else pa.string()))
    return pa.table(arrays, names=list(names))


def _transaction(transaction: TransactionInfo) -> tuple[object, ...]:
    return (
        str(transaction.txn_id),
        transaction.label,
        transaction.state,
        _instant(transaction.began_at_ms),
        None if transaction.committed_at_ms is None else _instant(transaction.committed_at_ms),
        None if transaction.finished_at_ms is None else _instant(transaction.finished_at_ms),
        transaction.reason,
        ", ".join(transaction.tables),
    )


def _instant(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
