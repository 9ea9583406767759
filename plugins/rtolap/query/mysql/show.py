"""SHOW and DESCRIBE as small tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext

import pyarrow as pa
from sqlglot import exp

from rtolap.base.errors import QueryError, UnknownDatabase, UnsupportedSql
from rtolap.model.stored.create_table_text import create_table_text
from rtolap.protocols.stored_tables.messages import TableName
from rtolap.query.cancel import Cancellation
from rtolap.query.catalogue import DATABASE, INFORMATION_SCHEMA, Catalogue, unknown_table
from rtolap.query.described import described
from rtolap.query.information_schema import INFORMATION_TABLES, index_rows
from rtolap.query.mysql.show_stored import PARTITIONS, TRANSACTION, StoredShows
from rtolap.query.mysql.statements import is_query
from rtolap.query.mysql.variables import Session
from rtolap.query.service import QueryService
from rtolap.query.sql.dialect import engine_sql, quoted_for_ansi
from rtolap.query.sql.parser import parse

_CHARACTERS_MAX = 4096  # of a SHOW: the patterns below look at some of them more than once
_NAME = r"(?:`?(?P<db>\w+)`?\s*\.\s*)?`?(?P<name>[^`\s;.]+)`?"
_FROM_DATABASE = r"(?:\s+(?:from|in)\s+`?(?P<from_db>\w+)`?)?"
# SHOW KEYS and the columns of information_schema.STATISTICS that it shows
_KEY_HEAD = (
    *("Table", "Non_unique", "Key_name", "Seq_in_index", "Column_name", "Collation", "Cardinality"),
    *("Sub_part", "Packed", "Null", "Index_type", "Comment", "Index_comment", "Visible", "Expression"),
)
_KEY_SOURCES = (
    *("NON_UNIQUE", "INDEX_NAME", "SEQ_IN_INDEX", "COLUMN_NAME", "COLLATION", "CARDINALITY"),
    *("SUB_PART", "PACKED", "NULLABLE", "INDEX_TYPE", "COMMENT", "INDEX_COMMENT", "IS_VISIBLE", "EXPRESSION"),
)
Ending = Callable[[], AbstractContextManager[Cancellation]]  # of one statement
Rows = tuple[Sequence[str], list[tuple[object, ...]]]


class Shows:
    """Thread-safe. `processes` lists the sessions that this server has."""

    def __init__(self, service: QueryService, processes: Callable[[], Iterable[Session]]) -> None:
        self._service = service
        self._processes = processes
        self._stored = StoredShows(service)
        routes: list[tuple[str, Callable[[re.Match[str], Session], Rows]]] = [
            (r"show\s+(?:databases|schemas)", self._databases),
            (rf"show\s+(?P<full>full\s+)?tables{_FROM_DATABASE}", self._tables),
            (rf"show\s+table\s+status{_FROM_DATABASE}", self._table_status),
            (
                rf"show\s+(?P<full>full\s+)?(?:columns|fields)\s+(?:from|in)\s+{_NAME}{_FROM_DATABASE}",
                self._columns,
            ),
            (rf"(?:describe|desc|explain)(?P<full>)\s+{_NAME}{_FROM_DATABASE}", self._columns),
            (rf"show\s+create\s+(?:table|view)\s+{_NAME}", self._create),
            (rf"show\s+(?:index|indexes|keys)\s+(?:from|in)\s+{_NAME}{_FROM_DATABASE}", self._keys),
            (rf"{PARTITIONS}{_NAME}", self._partitions),
            (TRANSACTION, self._stored.transaction),
            (r"show\s+(?:global\s+|session\s+|local\s+)?variables", self._variables),
            (r"show\s+(?:global\s+|session\s+|local\s+)?status", self._status),
            (
                r"show\s+(?P<count>count\s*\(\s*\*\s*\)\s*)?(?P<which>warnings|errors)\b",
                self._warnings,
            ),
            (r"show\s+(?:full\s+)?processlist", self._processlist),
            (r"show\s+(?:storage\s+)?engines", self._engines),
            (r"show\s+(?:character\s+set|charset)", self._charsets),
            (r"show\s+collation", self._collations),
            (
                r"show\s+(?:triggers|events|plugins|profiles|procedure\s+status|function\s+status)\b.*",
                self._none,
            ),
            (r"show\s+grants.*", self._grants),
        ]
        self._routes = [
            (re.compile(pattern, re.IGNORECASE | re.DOTALL), answer) for pattern, answer in routes
        ]

    def answer(self, sql: str, session: Session, ending: Ending | None = None) -> pa.Table | None:
        """Return the table that a SHOW or DESCRIBE is about; None if the statement is neither.

        `ending`: what ends the computing of its condition, which takes a turn as a query does.
        """
        text = sql.strip().rstrip(";").strip()
        if not re.match(r"(show|describe|desc|explain)\b", text, re.IGNORECASE):
            return None
        if len(text) > _CHARACTERS_MAX:
            if is_query(text):
                return None  # EXPLAIN SELECT
            raise QueryError("the statement is too long", expected=f"at most {_CHARACTERS_MAX} characters")
        for pattern, build in self._routes:
            match = pattern.match(text)
            if match is None:
                continue
            rest = text[match.end() :].strip()
            if rest and not re.match(r"(like|where|limit)\b", rest, re.IGNORECASE):
                continue
            names, rows = build(match, session)
            return self._filtered(_table(names, rows), rest, ending or self._unwatched)
        if re.match(r"show\b", text, re.IGNORECASE):
            raise UnsupportedSql(f"unsupported SHOW: {text[:80]}", expected="TABLES, COLUMNS, VARIABLES, …")
        return None

    def _filtered(self, table: pa.Table, rest: str, ending: Ending) -> pa.Table:
        if not rest:
            return table
        like = re.fullmatch(r"like\s+('(?:[^']|'')*'|\"[^\"]*\")", rest, re.IGNORECASE)
        first = table.column_names[0]
        condition = f"where lower(`{first}`) like lower({like[1]})" if like else rest
        tree = parse(f"select * from shown {condition}").tree
        tables = [node.name for node in tree.find_all(exp.Table)]
        if tables != ["shown"] or tree.find(exp.Anonymous, exp.Parameter) or not isinstance(tree, exp.Select):
            raise UnsupportedSql(f"unsupported SHOW filter: {condition[:80]}")
        for literal in list(tree.find_all(exp.Like)):
            pattern = literal.expression
            text = pattern.find(exp.Literal)
            if text is not None:  # `\_` is how clients quote the wildcard
                literal.replace(exp.Escape(this=literal.copy(), expression=exp.Literal.string("\\")))
        with ending() as cancellation:
            return self._service.over(table, "shown", engine_sql(tree), cancellation)

    def _unwatched(self) -> AbstractContextManager[Cancellation]:
        return nullcontext(self._service.cancellation())

    def _catalogue(self) -> Catalogue:
        return self._service.catalogue()

    def _relation(self, match: re.Match[str], session: Session) -> str:
        """The relation that is meant, by name, database and the session's."""
        groups = match.groupdict()
        database = groups.get("from_db") or groups.get("db") or session.database or DATABASE
        name = match["name"].strip("`")
        spelled = _spelled(self._catalogue(), database, name)
        if spelled is None:  # it may be new
            catalogue = self._service.catalogue(fresh=True)
            spelled = _spelled(catalogue, database, name)
            if spelled is None:
                raise unknown_table(name, catalogue)
        return spelled

    def _databases(self, match: re.Match[str], session: Session) -> Rows:
        return ("Database",), [(name,) for name in (INFORMATION_SCHEMA, *self._catalogue().databases())]

    def _in_database(self, match: re.Match[str], session: Session) -> tuple[str, dict[str, str]]:
        """A database, and (name -> relation) of its tables."""
        database = (match["from_db"] or session.database or DATABASE).lower()
        if database == INFORMATION_SCHEMA:
            return database, {name: name for name in sorted(INFORMATION_TABLES)}
        catalogue = self._catalogue()
        if database not in catalogue.databases():
            known = ", ".join(catalogue.databases())
            raise UnknownDatabase(f"unknown database {database!r}", expected=f"one of {known}")
        return database, catalogue.in_database(database)

    def _tables(self, match: re.Match[str], session: Session) -> Rows:
        database, tables = self._in_database(match, session)
        head = f"Tables_in_{database}"
        if match["full"]:
            return (head, "Table_type"), [(name, "BASE TABLE") for name in sorted(tables)]
        return (head,), [(name,) for name in sorted(tables)]

    def _table_status(self, match: re.Match[str], session: Session) -> Rows:
        _, tables = self._in_database(match, session)
        catalogue = self._catalogue()
        known = catalogue.all_names()
        return ("Name", "Engine", "Comment"), [
            (name, "rtolap", catalogue.comment(key)) for name, key in tables.items() if key in known
        ]

    def _columns(self, match: re.Match[str], session: Session) -> Rows:
        relation, catalogue = self._relation(match, session), self._catalogue()
        columns = described(catalogue, relation)
        if match["full"]:
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

    def _create(self, match: re.Match[str], session: Session) -> Rows:
        name, text = self._create_text(self._relation(match, session))
        return ("Table", "Create Table"), [(name, quoted_for_ansi(text) if session.has_ansi_quotes else text)]

    def _create_text(self, name: str) -> tuple[str, str]:
        """The table's name, and the text."""
        catalogue = self._catalogue()
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

    def _partitions(self, match: re.Match[str], session: Session) -> Rows:
        relation, catalogue = self._relation(match, session), self._catalogue()
        if relation not in catalogue.stored:
            raise QueryError(f"{relation} has no partitions", expected="a stored table")
        table = catalogue.stored[relation]
        return self._stored.partitions(TableName(table.db, table.name))

    def _keys(self, match: re.Match[str], session: Session) -> Rows:
        relation, catalogue = self._relation(match, session), self._catalogue()
        table = catalogue.stored[relation].name if relation in catalogue.stored else relation
        return _KEY_HEAD, [
            (table, *(row.get(source) for source in _KEY_SOURCES)) for row in index_rows(catalogue, relation)
        ]

    def _variables(self, match: re.Match[str], session: Session) -> Rows:
        return ("Variable_name", "Value"), [(name, str(value)) for name, value in session.variables.items()]

    def _status(self, match: re.Match[str], session: Session) -> Rows:
        connected = sum(1 for _ in self._processes())
        return ("Variable_name", "Value"), [
            ("Ssl_cipher", session.tls_cipher),
            ("Threads_connected", str(connected)),
        ]

    def _warnings(self, match: re.Match[str], session: Session) -> Rows:
        found: list[tuple[object, ...]] = [*session.warnings]
        if match["which"].lower() == "errors":
            found = [row for row in found if row[0] == "Error"]
        if match["count"]:
            name = f"@@session.{match['which'].lower().removesuffix('s')}_count"
            return (name,), [(len(found),)]
        return ("Level", "Code", "Message"), found

    def _processlist(self, match: re.Match[str], session: Session) -> Rows:
        rows: list[tuple[object, ...]] = [
            (s.connection_id, s.user, s.host, s.database, "Query" if s.running else "Sleep", s.running)
            for s in self._processes()
            if s.user == session.user
        ]
        return ("Id", "User", "Host", "db", "Command", "Info"), rows

    def _engines(self, match: re.Match[str], session: Session) -> Rows:
        return ("Engine", "Support", "Comment"), [("rtolap", "DEFAULT", "cubes over Kafka, stored tables")]

    def _charsets(self, match: re.Match[str], session: Session) -> Rows:
        return ("Charset", "Description", "Default collation", "Maxlen"), [
            ("utf8mb4", "UTF-8 Unicode", "utf8mb4_bin", 4)
        ]

    def _collations(self, match: re.Match[str], session: Session) -> Rows:
        return ("Collation", "Charset", "Id", "Default", "Compiled", "Sortlen"), [
            ("utf8mb4_bin", "utf8mb4", 46, "Yes", "Yes", 1)
        ]

    def _none(self, match: re.Match[str], session: Session) -> Rows:
        return ("Name",), []

    def _grants(self, match: re.Match[str], session: Session) -> Rows:
        return (f"Grants for {session.user}",), [(f"GRANT SELECT ON `{DATABASE}`.* TO `{session.user}`",)]


def _spelled(catalogue: Catalogue, database: str, name: str) -> str | None:
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
