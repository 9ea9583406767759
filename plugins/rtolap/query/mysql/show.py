"""SHOW and DESCRIBE as small tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from rtolap.base.errors import QueryError
from rtolap.query.catalogue import DATABASE, INFORMATION_SCHEMA, Catalogue, unknown_table
from rtolap.query.dialect import RtolapSql, engine_sql
from rtolap.query.information_schema import INFORMATION_TABLES, sql_type
from rtolap.query.mysql.variables import Session
from rtolap.query.service import QueryService

_NAME = r"(?:`?\w+`?\s*\.\s*)?`?([^`\s;]+)`?"
_FROM_DATABASE = r"(?:\s+(?:from|in)\s+`?(\w+)`?)?"
Rows = tuple[Sequence[str], list[tuple[object, ...]]]


class Shows:
    """Thread-safe. `processes` lists the sessions that this server has."""

    def __init__(self, service: QueryService, processes: Callable[[], Iterable[Session]]) -> None:
        self._service = service
        self._processes = processes
        routes: list[tuple[str, Callable[[re.Match[str], Session], Rows]]] = [
            (r"show\s+(?:databases|schemas)", self._databases),
            (rf"show\s+(full\s+)?tables{_FROM_DATABASE}", self._tables),
            (rf"show\s+table\s+status{_FROM_DATABASE}", self._table_status),
            (rf"show\s+(full\s+)?(?:columns|fields)\s+(?:from|in)\s+{_NAME}{_FROM_DATABASE}", self._columns),
            (rf"(?:describe|desc|explain)()\s+{_NAME}", self._columns),
            (rf"show\s+create\s+(?:table|view)\s+{_NAME}", self._create),
            (rf"show\s+(?:index|indexes|keys)\s+(?:from|in)\s+{_NAME}{_FROM_DATABASE}", self._keys),
            (r"show\s+(?:global\s+|session\s+|local\s+)?variables", self._variables),
            (r"show\s+(?:global\s+|session\s+|local\s+)?status", self._status),
            (r"show\s+(?:count\(\*\)\s+)?(?:warnings|errors)", self._warnings),
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

    def answer(self, sql: str, session: Session) -> pa.Table | None:
        """The table that a SHOW or DESCRIBE asks for; None if the statement is neither."""
        text = sql.strip().rstrip(";").strip()
        if not re.match(r"(show|describe|desc|explain)\b", text, re.IGNORECASE):
            return None
        for pattern, build in self._routes:
            match = pattern.match(text)
            if match is None:
                continue
            rest = text[match.end() :].strip()
            if rest and not re.match(r"(like|where|limit)\b", rest, re.IGNORECASE):
                continue
            names, rows = build(match, session)
            return self._filtered(_table(names, rows), rest)
        if re.match(r"show\b", text, re.IGNORECASE):
            raise QueryError(f"unsupported SHOW: {text[:80]}", expected="TABLES, COLUMNS, VARIABLES, …")
        return None

    def _filtered(self, table: pa.Table, rest: str) -> pa.Table:
        if not rest:
            return table
        like = re.fullmatch(r"like\s+('(?:[^']|'')*'|\"[^\"]*\")", rest, re.IGNORECASE)
        first = table.column_names[0]
        condition = f"where lower(`{first}`) like lower({like[1]})" if like else rest
        try:
            tree = sqlglot.parse_one(f"select * from shown {condition}", dialect=RtolapSql)
        except SqlglotError as error:
            raise QueryError(f"bad SQL: {condition[:80]}") from error
        tables = [node.name for node in tree.find_all(exp.Table)]
        if tables != ["shown"] or tree.find(exp.Anonymous) or not isinstance(tree, exp.Select):
            raise QueryError(f"unsupported SHOW filter: {condition[:80]}")
        for literal in list(tree.find_all(exp.Like)):
            pattern = literal.expression
            text = pattern.find(exp.Literal)
            if text is not None:  # `\_` is how clients quote the wildcard
                literal.replace(exp.Escape(this=literal.copy(), expression=exp.Literal.string("\\")))
        return self._service.over(table, "shown", engine_sql(tree))

    def _catalogue(self) -> Catalogue:
        return self._service.catalogue()

    def _relation(self, name: str) -> str:
        spelled = self._catalogue().spelled(name.strip("`"))
        if spelled is None:
            raise unknown_table(name, self._catalogue())
        return spelled

    def _databases(self, match: re.Match[str], session: Session) -> Rows:
        return ("Database",), [(INFORMATION_SCHEMA,), (DATABASE,)]

    def _tables(self, match: re.Match[str], session: Session) -> Rows:
        database = (match[2] or session.database or DATABASE).lower()
        names = INFORMATION_TABLES if database == INFORMATION_SCHEMA else self._catalogue().relation_names()
        if database not in (DATABASE, INFORMATION_SCHEMA):
            raise QueryError(f"unknown database {database!r}", expected=DATABASE)
        head = f"Tables_in_{database}"
        if match[1]:
            return (head, "Table_type"), [(name, "BASE TABLE") for name in sorted(names)]
        return (head,), [(name,) for name in sorted(names)]

    def _table_status(self, match: re.Match[str], session: Session) -> Rows:
        catalogue = self._catalogue()
        return ("Name", "Engine", "Comment"), [
            (name, "rtolap", catalogue.comment(name)) for name in catalogue.relation_names()
        ]

    def _columns(self, match: re.Match[str], session: Session) -> Rows:
        columns = self._catalogue().listed_columns(self._relation(match[2]))
        if match[1]:
            head = ("Field", "Type", "Collation", "Null", "Key", "Default", "Extra", "Privileges", "Comment")
            return head, [
                (name, sql_type(kind), None, "YES", "", None, "", "select", "")
                for name, kind in columns.items()
            ]
        return ("Field", "Type", "Null", "Key", "Default", "Extra"), [
            (name, sql_type(kind), "YES", "", None, "") for name, kind in columns.items()
        ]

    def _create(self, match: re.Match[str], session: Session) -> Rows:
        name = self._relation(match[1])
        columns = self._catalogue().listed_columns(name)
        lines = ",\n".join(f"  `{column}` {sql_type(kind)} DEFAULT NULL" for column, kind in columns.items())
        text = (
            f"CREATE TABLE `{name}` (\n{lines}\n) ENGINE=rtolap DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin "
            f"COMMENT='{self._catalogue().comment(name)}'"
        )
        return ("Table", "Create Table"), [(name, text)]

    def _keys(self, match: re.Match[str], session: Session) -> Rows:
        self._relation(match[1])
        return ("Table", "Non_unique", "Key_name", "Seq_in_index", "Column_name"), []

    def _variables(self, match: re.Match[str], session: Session) -> Rows:
        return ("Variable_name", "Value"), [(name, str(value)) for name, value in session.variables.items()]

    def _status(self, match: re.Match[str], session: Session) -> Rows:
        connected = sum(1 for _ in self._processes())
        return ("Variable_name", "Value"), [
            ("Ssl_cipher", session.tls_cipher),
            ("Threads_connected", str(connected)),
        ]

    def _warnings(self, match: re.Match[str], session: Session) -> Rows:
        return ("Level", "Code", "Message"), list(session.warnings)

    def _processlist(self, match: re.Match[str], session: Session) -> Rows:
        rows: list[tuple[object, ...]] = [
            (s.connection_id, s.user, s.host, s.database, "Query" if s.running else "Sleep", s.running)
            for s in self._processes()
            if s.user == session.user
        ]
        return ("Id", "User", "Host", "db", "Command", "Info"), rows

    def _engines(self, match: re.Match[str], session: Session) -> Rows:
        return ("Engine", "Support", "Comment"), [("rtolap", "DEFAULT", "cubes over Kafka")]

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


def _table(names: Sequence[str], rows: list[tuple[object, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    arrays = []
    for values in columns:
        whole = any(isinstance(value, int) for value in values)
        arrays.append(pa.array(list(values), pa.int64() if whole else pa.string()))
    return pa.table(arrays, names=list(names))
