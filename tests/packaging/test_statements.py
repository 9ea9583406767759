"""Tests of what the MySQL server and the HTTP server answer to whom, by kind of statement."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pymysql
import pytest
from rtolap.base.errors import RtolapError
from rtolap.protocols.query.client import QueryClient
from rtolap.query.mysql.codes import error_code

from tests.support.cubes.flights import flights_world
from tests.support.pages.texts import text_of
from tests.support.query.query_endpoints import (
    DEFINING_USER,
    LOADING_USER,
    OTHER_USER,
    PASSWORD,
    TOKEN,
    USER,
    Endpoints,
    open_endpoints,
)

ROLES = {
    "nobody": ("", ""),
    "a user": (USER, PASSWORD),
    "a loader": (LOADING_USER, PASSWORD),
    "a definer": (DEFINING_USER, PASSWORD),
    "the token": (USER, TOKEN),  # it is no password
    "a person of a service": (USER, TOKEN),  # that has the token, and says for whom it asks
}
KNOWN, DEFINING, NOBODY = ("a user", "a loader", "a definer"), ("a definer",), ()
OVER_HTTP = (*KNOWN, "the token", "a person of a service")
LOGIN_REFUSED, FORBIDDEN = 1045, 1142


class Statements(NamedTuple):
    """`{own}`, `{other}`: MySQL connections of one's own and of another user. `roles`: over MySQL."""

    what: str
    statements: tuple[str, ...]
    roles: tuple[str, ...]
    http_roles: tuple[str, ...]


OPERATIONS = (
    Statements(
        "SELECT, WITH, EXPLAIN, PREPARE",
        (
            "select count(*) from flights",
            "with a as (select 1 b) select b from a",
            "explain select count(*) from flights",
        ),
        KNOWN,
        OVER_HTTP,
    ),
    Statements(
        "SHOW, DESCRIBE, BEGIN, COMMIT",
        (
            *("show tables", "show processlist", "describe flights", "show variables", "show grants"),
            *("begin", "commit", "rollback"),
        ),
        KNOWN,
        OVER_HTTP,
    ),
    Statements(
        "USE, SET, PREPARE and EXECUTE of the session",
        (
            "use rtolap",
            "set @a = 1",
            "set sql_mode = 'ANSI_QUOTES'",
            "prepare s from 'select 1'",
        ),
        KNOWN,
        NOBODY,
    ),
    Statements("KILL of what is one's own", ("kill query {own}", "kill {own}"), KNOWN, KNOWN),
    Statements(
        "KILL of another user's",
        ("kill query {other}", "kill {other}", "kill connection {other}"),
        NOBODY,
        NOBODY,
    ),
    Statements(
        "CREATE, ALTER, TRUNCATE, DROP of stored tables and databases",
        (
            "create table shop.a (id int not null) duplicate key(id) distributed by hash(id) buckets 1",
            "alter table shop.a add column b int",
            "alter table shop.a drop column b",
            "truncate table shop.a",
            "drop table shop.a",
            "create database shop",
            "drop database shop",
        ),
        DEFINING,
        (*DEFINING, "the token"),
    ),
    Statements(
        "INSERT, UPDATE, DELETE, LOAD DATA, GRANT, SET GLOBAL, what the engine knows beyond SQL",
        (
            *("insert into flights values (1)", "update flights set gate = 1", "delete from flights"),
            *(
                "load data infile '/etc/passwd' into table flights",
                "grant all on *.* to ann",
                "drop view flights",
            ),
            *("create user eve", "set global sql_mode = ''", "create view v as select 1", "install httpfs"),
            *("create macro m(x) as 1", "attach 'a.db'", "copy flights to 'a.csv'", "pragma database_list"),
            *("select * from duckdb_settings()", "select * from read_text('/etc/passwd')", "load httpfs"),
            *("select getenv('HOME')", "select 1 into outfile 'a.txt'", "select load_file('/etc/passwd')"),
            *("select 1; drop table flights", "call pragma_version()", "flights; select 1"),
        ),
        NOBODY,
        NOBODY,
    ),
)


@pytest.fixture(scope="module")
def endpoints() -> Iterator[Endpoints]:
    world = flights_world(7, 50)
    with open_endpoints(world) as opened:
        yield opened
    world.close()


def error_of(endpoints: Endpoints, role: str, statement: str) -> int | None:
    """The number of the error that the statement is answered with, or its login; None if it is done."""
    user, password = ROLES[role]
    try:
        with (
            endpoints.connect(user=OTHER_USER) as other,
            endpoints.connect(user=user, password=password) as first,
            endpoints.connect(user=user, password=password) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(statement.format(own=first.thread_id(), other=other.thread_id()))
            other.ping(reconnect=False)
    except pymysql.MySQLError as error:
        return int(error.args[0])
    return None


def http_error_of(endpoints: Endpoints, role: str, statement: str) -> int | None:
    """Do as `error_of`, over HTTP: its numbers are those of the errors' types."""
    user, password = ROLES[role]
    owner = user if role in KNOWN else USER  # who has the token has no connections
    credentials = {"user": user, "password": password}
    if role == "the token":
        credentials = {"token": TOKEN}
    elif role == "a person of a service":
        credentials = {"token": TOKEN, "on_behalf_of": f"airflow:{DEFINING_USER}"}
    with (
        endpoints.connect(user=OTHER_USER) as other,
        endpoints.connect(user=owner) as own,
        QueryClient(endpoints.http_url, **credentials) as client,
    ):
        try:
            client.query(statement.format(own=own.thread_id(), other=other.thread_id()))
        except RtolapError as error:
            return error_code(error)[0]
        finally:
            other.ping(reconnect=False)
    return None


Roles = Callable[[Statements], tuple[str, ...]]
ErrorOf = Callable[[Endpoints, str, str], int | None]
SERVERS: dict[str, tuple[ErrorOf, Roles]] = {
    "MySQL": (error_of, lambda operation: operation.roles),
    "HTTP": (http_error_of, lambda operation: operation.http_roles),
}


@pytest.mark.parametrize(
    ("server", "role"),
    [*(("MySQL", role) for role in KNOWN), *(("HTTP", role) for role in OVER_HTTP)],
)
def test_each_role_may_do_what_the_table_says(endpoints: Endpoints, server: str, role: str) -> None:
    ask, roles_of = SERVERS[server]
    wrong = []
    for operation in OPERATIONS:
        roles = roles_of(operation)
        for statement in operation.statements:
            error = ask(endpoints, role, statement)
            # There are no stored tables here: who may define is refused nothing, and told that.
            is_allowed = error is None or (
                operation.roles == DEFINING and error not in (LOGIN_REFUSED, FORBIDDEN)
            )
            if is_allowed is not (role in roles):
                wrong.append(f"{statement}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("server", "role"),
    [("MySQL", "nobody"), ("MySQL", "the token"), ("MySQL", "a person of a service"), ("HTTP", "nobody")],
)
def test_who_has_no_password_is_refused_at_the_login(endpoints: Endpoints, server: str, role: str) -> None:
    ask, roles_of = SERVERS[server]
    assert ask(endpoints, role, "select 1") == LOGIN_REFUSED
    assert not any(role in roles_of(operation) for operation in OPERATIONS)


@pytest.mark.parametrize("server", SERVERS)
def test_the_page_on_security_has_this_table(server: str) -> None:
    _, roles_of = SERVERS[server]
    lines = [f"| over {server} | " + " | ".join(ROLES) + " |", "|---" * (1 + len(ROLES)) + "|"]
    for each in OPERATIONS:
        may = " | ".join("yes" if role in roles_of(each) else "" for role in ROLES)
        lines.append(f"| {each.what} | {may} |")
    assert "\n".join(lines) in text_of("security"), "the table is:\n" + "\n".join(lines)
