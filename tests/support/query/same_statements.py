"""Statements that every SQL server takes, and clients of all of them that answer in the same words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pymysql
from rtolap import dbapi
from rtolap.base.errors import RtolapError, from_dict
from rtolap.protocols.query.client import QueryClient
from rtolap.query.mysql.codes import WARNING_NUMBERS, error_code

# All that follow are asked in order. `{db}` is a database of the server's own: each defines its tables.
ANSWERED = (
    *("select 1 as x", "select 'a' as a, null as b, 1.50 as c", "-- why\nselect 1 as x", "/*! select 2 */"),
    *("with a as (select 1 as b) select b from a", "explain select 1 as x", ";", "begin", "commit"),
    *("rollback", "start transaction", "savepoint a", "select @@version_comment", "select user()"),
    *("select database()", "select version()", "select connection_id() > -1 as c", "show status"),
    *("show databases", "show schemas like 'inf%'", "show tables from information_schema", "show variables"),
    *("show variables like 'version%'", "show variables where variable_name = 'autocommit'", "show engines"),
    *("show warnings", "show errors", "show count(*) warnings", "show processlist", "show grants"),
    *("show charset", "show character set", "show collation", "show triggers", "show events", "show plugins"),
    *("show procedure status", "select @@max_allowed_packet as p"),
)
REFUSED = {
    **dict.fromkeys(("", "selec 1", "select 1; select 2", "select 'a", "select", "show tables like 1"), 1064),
    **dict.fromkeys(("create table", "drop table", "truncate", "load data infile 'a' into table t"), 1064),
    **dict.fromkeys(
        ("show nonsense", "insert into t values (1)", "update t set a = 1", "delete from t"), 1235
    ),
    **dict.fromkeys(("grant all on *.* to ann", "create view v as select 1", "rename table a to b"), 1235),
    **dict.fromkeys(("describe no_such_table", "select * from no_such_table"), 1146),
    **dict.fromkeys(("show create table no_such_table", "show partitions from no_such_table"), 1146),
    **dict.fromkeys(("show tables from no_such_database", "select a from {db}.people"), 1049),
    **dict.fromkeys(("kill 999999", "kill query 999999"), 1094),
    "select @@no_such_variable": 1193,
    "select no_such_function(1)": 1305,
    "select 9223372036854775807 + 1 as x": 1690,
}
DEFINED = (
    "create database {db}",
    "create database {db}",
    "create database if not exists {db}",
    "create table {db}.people (id int not null, name varchar(20)) unique key(id) "
    "distributed by hash(id) buckets 2 properties ('replication_num' = '1')",
    "create table {db}.people (id int not null) unique key(id) distributed by hash(id) buckets 2",
    "create table if not exists {db}.people (id int) unique key(id) distributed by hash(id) buckets 3",
    "create table people (id int not null) unique key(id) distributed by hash(id) buckets 2",
    "create table rtolap.people (id int not null) unique key(id) distributed by hash(id) buckets 2",
    *("show tables from {db}", "show full tables from {db}", "show table status from {db}"),
    *("describe {db}.people", "desc {db}.people", "show columns from people from {db}"),
    *("show full columns from {db}.people like 'n%'", "show create table {db}.people"),
    *("show keys from {db}.people", "show index from people from {db}", "show partitions from {db}.people"),
    *("select count(*) as n from {db}.people", "explain select count(*) as n from {db}.people"),
    *("select no_such_column from {db}.people", "select count(*) as n from people"),
    "show transaction from {db} where label = 'none'",
    "show transaction from {db} where label like 'no%'",
    "show transaction where label = 'none'",
    "alter table {db}.people",
    "alter table {db}.people add column city varchar(10)",
    "alter table {db}.people add column city varchar(10)",
    *("alter table {db}.people rename column city town", "describe {db}.people"),
    *("alter table {db}.people drop column town", "alter table {db}.people drop column town"),
    *("alter table {db}.nothing add column a int", "alter table {db}.people drop partition p1"),
    *("truncate table {db}.people", "truncate {db}.nothing", "drop database {db}", "drop table {db}.people"),
    *("drop table {db}.people", "drop table if exists {db}.people", "describe {db}.people"),
    *("drop database {db}", "drop database {db}", "drop database if exists {db}"),
)
STATEMENTS = (*ANSWERED, *REFUSED, *DEFINED)
# They want a session that is kept, which only the MySQL protocol has.
OF_A_SESSION = (
    *("set @a = 1", "set sql_mode = 'ANSI_QUOTES'", "set names utf8mb4", "use rtolap", "use {db}"),
    *("prepare s from 'select 1'", "execute s", "deallocate prepare s"),
)


@dataclass(frozen=True)
class Answered:
    """An answer. `rows` is None for a statement that answers none; `warnings` are (level, number, message).

    `error`: the type's code and number of MySQL; the code is None where the protocol has none.
    """

    columns: tuple[str, ...] | None = None
    rows: tuple[tuple[Any, ...], ...] | None = None
    warnings: tuple[tuple[str, int, str], ...] = ()
    error: int | None = None


Ask = Callable[[str], Answered]


@contextmanager
def all_servers(
    mysql_port: int, http_url: str, user: str, password: str, *, database: str | None = None
) -> Iterator[dict[str, Ask]]:
    """Return one client of each kind, with the same user. `database`: of tables that are named without
    one."""
    with ExitStack() as stack:
        mysql = stack.enter_context(
            pymysql.connect(
                host="127.0.0.1", port=mysql_port, user=user, password=password, database=database
            )
        )
        options: dict[str, Any] = {"user": user, "password": password, "database": database}
        client = stack.enter_context(QueryClient(http_url, **options))
        connection = stack.enter_context(dbapi.connect(http_url, **options))
        yield {
            "MySQL": lambda sql: _by_mysql(mysql, sql),
            "HTTP": lambda sql: _by_http(client, sql),
            "DB-API": lambda sql: _by_dbapi(connection, sql),
        }


def _by_mysql(connection: pymysql.connections.Connection[Any], sql: str) -> Answered:
    with connection.cursor() as cursor:
        try:
            cursor.execute(sql)
        except pymysql.MySQLError as error:
            return Answered(error=int(error.args[0]))
        columns, rows = cursor.description, cursor.fetchall()
        warnings = cursor.warning_count and cursor.execute("show warnings") and cursor.fetchall()
        return _answered(
            None if columns is None else [str(column[0]) for column in columns], rows, tuple(warnings or ())
        )


def _by_http(client: QueryClient, sql: str) -> Answered:
    try:
        answer = client.query(sql)
    except RtolapError as error:
        return Answered(error=error_code(error)[0])
    warnings = tuple((each.level, WARNING_NUMBERS[each.code], each.message) for each in answer.warnings)
    return _answered([column.name for column in answer.columns] or None, answer.rows, warnings)


def _by_dbapi(connection: dbapi.Connection, sql: str) -> Answered:
    cursor = connection.cursor()
    try:
        cursor.execute(sql)
    except dbapi.Error as error:
        return Answered(error=error_code(from_dict({"code": error.code, "message": str(error)}))[0])
    columns = cursor.description
    rows = () if columns is None else cursor.fetchall()
    warnings = tuple(
        (warning.level, WARNING_NUMBERS[warning.code], str(warning)) for _, warning in cursor.messages
    )
    return _answered(None if columns is None else [str(column[0]) for column in columns], rows, warnings)


def _answered(
    columns: Sequence[str] | None, rows: Sequence[Sequence[Any]], warnings: tuple[Any, ...]
) -> Answered:
    if columns is None:
        return Answered(warnings=warnings)
    return Answered(tuple(columns), tuple(tuple(map(_value, row)) for row in rows), warnings)


def _value(value: object) -> object:
    """Return the value as JSON has it: decimals with a scale, dates and times are texts there."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() and "." not in str(value) else str(value)
    if isinstance(value, bool):
        return int(value)  # the MySQL protocol knows no other
    return str(value) if isinstance(value, date) else value


def asked_of_each(servers: dict[str, Ask], prefix: str, statements: Sequence[str] = STATEMENTS) -> list[str]:
    """Return the statements whose answers differ, with the answers. Each server's database is taken out of
    them."""
    different = []
    for statement in statements:
        found: dict[str, str] = {}
        for name, ask in servers.items():
            database = f"{prefix}_{name.lower().replace('-', '')}"
            answer = ask(statement.format(db=database) if "{db}" in statement else statement)
            found[name] = repr(answer).replace(database, "{db}")
        if len(set(found.values())) != 1:
            different.append(f"{statement}: {found}")
    return different
