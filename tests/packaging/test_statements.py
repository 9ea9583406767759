"""What the MySQL server answers to whom, by kind of statement."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pymysql
import pytest

from tests.support.cubes.flights import flights_world
from tests.support.query.query_doors import (
    DEFINING_USER,
    LOADING_USER,
    OTHER_USER,
    PASSWORD,
    TOKEN,
    USER,
    Doors,
    open_doors,
)

SECURITY = Path(__file__).parents[2] / "docs" / "security.md"
ROLES = {
    "nobody": ("", ""),
    "a user": (USER, PASSWORD),
    "a loader": (LOADING_USER, PASSWORD),
    "a definer": (DEFINING_USER, PASSWORD),
    "the token": (USER, TOKEN),  # it is no password
}
KNOWN, DEFINING, NOBODY = ("a user", "a loader", "a definer"), ("a definer",), ()
LOGIN_REFUSED, FORBIDDEN = 1045, 1142


class Statements(NamedTuple):
    """`{own}` and `{other}` are connections of one's own and of another user."""

    what: str
    statements: tuple[str, ...]
    roles: tuple[str, ...]


OPERATIONS = (
    Statements(
        "SELECT, WITH, EXPLAIN, PREPARE",
        (
            "select count(*) from flights",
            "with a as (select 1 b) select b from a",
            "explain select count(*) from flights",
        ),
        KNOWN,
    ),
    Statements(
        "SHOW, DESCRIBE, USE, SET of the session, BEGIN, COMMIT",
        (
            *("show tables", "show processlist", "describe flights", "show variables", "show grants"),
            *("use rtolap", "set @a = 1", "set sql_mode = 'ANSI_QUOTES'", "begin", "commit", "rollback"),
        ),
        KNOWN,
    ),
    Statements("KILL of what is one's own", ("kill query {own}", "kill {own}"), KNOWN),
    Statements(
        "KILL of another user's", ("kill query {other}", "kill {other}", "kill connection {other}"), NOBODY
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
    ),
)


@pytest.fixture(scope="module")
def doors() -> Iterator[Doors]:
    world = flights_world(7, 50)
    with open_doors(world) as opened:
        yield opened
    world.close()


def error_of(doors: Doors, role: str, statement: str) -> int | None:
    """The number of the error that the statement is answered with, or its login; None if it is done."""
    user, password = ROLES[role]
    try:
        with (
            doors.connect(user=OTHER_USER) as other,
            doors.connect(user=user, password=password) as first,
            doors.connect(user=user, password=password) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(statement.format(own=first.thread_id(), other=other.thread_id()))
            other.ping(reconnect=False)
    except pymysql.MySQLError as error:
        return int(error.args[0])
    return None


@pytest.mark.parametrize("role", KNOWN)
def test_each_role_may_do_what_the_table_says(doors: Doors, role: str) -> None:
    wrong = []
    for operation in OPERATIONS:
        for statement in operation.statements:
            error = error_of(doors, role, statement)
            # There are no stored tables here: who may define is refused nothing, and told that.
            is_allowed = error is None or (
                operation.roles == DEFINING and error not in (LOGIN_REFUSED, FORBIDDEN)
            )
            if is_allowed is not (role in operation.roles):
                wrong.append(f"{statement}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("role", sorted(set(ROLES) - set(KNOWN)))
def test_who_has_no_password_is_refused_at_the_login(doors: Doors, role: str) -> None:
    assert error_of(doors, role, "select 1") == LOGIN_REFUSED
    assert not any(role in operation.roles for operation in OPERATIONS)


def test_the_page_on_security_has_this_table() -> None:
    lines = ["| statement | " + " | ".join(ROLES) + " |", "|---" * (1 + len(ROLES)) + "|"]
    for each in OPERATIONS:
        may = " | ".join("yes" if role in each.roles else "" for role in ROLES)
        lines.append(f"| {each.what} | {may} |")
    assert "\n".join(lines) in SECURITY.read_text(), "the table is:\n" + "\n".join(lines)
