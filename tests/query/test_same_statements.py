"""The MySQL protocol, HTTP and DB-API take the same statements and answer the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import pymysql
import pytest
from rtolap import dbapi
from rtolap.base.errors import QueryError, RtolapError, UnknownDatabase
from rtolap.protocols.query.client import QueryClient
from rtolap.query.statements.classify import ClassifiedStatement, classify, plain
from rtolap.query.statements.shows import Show, ShowKind

from tests.support import http_calls
from tests.support.query.query_endpoints import (
    DEFINING_USER,
    OTHER_USER,
    PASSWORD,
    TOKEN,
    USER,
    Endpoints,
    open_endpoints,
)
from tests.support.query.query_world import QueryWorld
from tests.support.query.same_statements import (
    ANSWERED,
    OF_A_SESSION,
    REFUSED,
    STATEMENTS,
    Ask,
    all_servers,
    asked_of_each,
)
from tests.support.stored.stored_world import StoredWorld

FORBIDDEN, UNSUPPORTED = 1142, 1235
CREATE = "create table {db}.t (id int not null) unique key(id) distributed by hash(id) buckets 1"


@pytest.fixture(scope="module")
def endpoints(world: QueryWorld) -> Iterator[Endpoints]:
    with StoredWorld() as stored, open_endpoints(world, stored=stored.source) as opened:
        yield opened


@pytest.fixture
def servers(endpoints: Endpoints) -> Iterator[dict[str, Ask]]:
    with all_servers(endpoints.mysql_port, endpoints.http_url, DEFINING_USER, PASSWORD) as opened:
        yield opened


def test_every_statement_has_the_same_answer_at_all_servers(servers: dict[str, Ask]) -> None:
    different = asked_of_each(servers, "same")
    assert not different, "\n".join(different)
    for statement in ANSWERED:
        assert servers["HTTP"](statement).error is None, statement
    for statement, number in REFUSED.items():
        assert servers["HTTP"](statement.format(db="nowhere")).error == number, statement


WRONG = ("select count(*) as n from flights where no_such_column = 1", "show keys from no_such_cube")
OF_CUBES = (
    *("select carrier, count(*) as n from flights group by carrier order by carrier", "show tables"),
    *("explain select count(*) as n from flights", "describe flights", "show create table flights"),
    *("show full columns from flights", "select table_name from information_schema.tables order by 1"),
    *WRONG,
)


def test_cubes_are_shown_and_asked_the_same(servers: dict[str, Ask]) -> None:
    different = asked_of_each(servers, "cubes", OF_CUBES)
    assert not different, "\n".join(different)
    assert all(servers["HTTP"](sql).rows for sql in OF_CUBES if sql not in WRONG)


def test_what_wants_a_session_that_is_kept_is_refused_by_its_type_elsewhere(servers: dict[str, Ask]) -> None:
    servers["MySQL"]("create database kept")
    for sql in OF_A_SESSION:
        statement = sql.format(db="kept")
        assert servers["MySQL"](statement).error is None, statement
        assert servers["HTTP"](statement).error == servers["DB-API"](statement).error == UNSUPPORTED, (
            statement
        )
    servers["MySQL"]("drop database kept")


def test_a_database_goes_with_a_request_where_mysql_clients_use_one(endpoints: Endpoints) -> None:
    names = ("select count(*) as n from t", "describe t", "show tables", "select database()")
    with QueryClient(endpoints.http_url, token=TOKEN) as client:
        client.query(CREATE.format(db="named"))
    with all_servers(
        endpoints.mysql_port, endpoints.http_url, DEFINING_USER, PASSWORD, database="named"
    ) as servers:
        assert asked_of_each(servers, "none", names) == []
        assert servers["DB-API"]("select database()").rows == (("named",),)
        assert servers["HTTP"]("drop table t").error is None
    with (
        QueryClient(endpoints.http_url, token=TOKEN, database="nowhere") as client,
        pytest.raises(UnknownDatabase),
    ):
        client.query("select 1")


def test_definitions_want_the_same_right_at_every_server(endpoints: Endpoints) -> None:
    """The table of rights, over each server: packaging/test_statements.py."""
    with all_servers(endpoints.mysql_port, endpoints.http_url, USER, PASSWORD) as servers:
        for name, ask in servers.items():
            assert ask(CREATE.format(db="forbidden")).error == FORBIDDEN, name
            assert ask("drop database if exists forbidden").error == FORBIDDEN, name
            assert ask("show tables from forbidden").error == 1049, name


def test_connections_are_seen_and_ended_by_their_user_alone_over_http(endpoints: Endpoints) -> None:
    with endpoints.connect() as mine, endpoints.connect(user=OTHER_USER) as others:
        with QueryClient(endpoints.http_url, user=USER, password=PASSWORD) as client:
            listed = client.query("show processlist").rows
            assert [row[0] for row in listed] == [mine.thread_id()]
            with pytest.raises(QueryError, match="unknown connection"):
                client.query(f"kill {others.thread_id()}")
            client.query(f"kill {mine.thread_id()}")
        with QueryClient(endpoints.http_url, token=TOKEN) as client:
            assert client.query("show processlist").rows == ()
            with pytest.raises(QueryError, match="unknown connection"):
                client.query(f"kill {others.thread_id()}")
        others.ping(reconnect=False)
        with pytest.raises(pymysql.OperationalError):
            mine.ping(reconnect=False)


def test_a_page_elsewhere_cannot_have_a_browser_define_anything(endpoints: Endpoints) -> None:
    """A form or a script without leave of ours sends no JSON, whatever credentials the browser adds."""
    body = b'{"sql": "create database by_a_browser"}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", None):
        headers = {} if kind is None else {"Content-Type": kind}
        answer = http_calls.post(
            f"{endpoints.http_url}/api/v1/query",
            content=body,
            headers=headers,
            auth=(DEFINING_USER, PASSWORD),
        )
        assert answer.status_code == 422, kind
    with QueryClient(endpoints.http_url, token=TOKEN) as client:
        assert ("by_a_browser",) not in client.query("show databases").rows


def test_parameters_are_for_queries(endpoints: Endpoints) -> None:
    with dbapi.connect(endpoints.http_url, token=TOKEN) as connection:
        cursor = connection.cursor()
        with pytest.raises(dbapi.ProgrammingError, match="wrong number of parameters"):
            cursor.execute("show tables", (1,))
        assert cursor.execute("begin").description is None
        assert cursor.rowcount == -1
        with pytest.raises(dbapi.InterfaceError, match="no rows"):
            cursor.fetchall()


def test_the_table_asks_for_each_kind_of_statement() -> None:
    kinds, forms = set(), set()
    for statement in (*STATEMENTS, *OF_A_SESSION):
        try:
            request = classify(plain(statement.format(db="shop")), None)
        except RtolapError:
            continue
        kinds.add(type(request))
        if isinstance(request, Show):
            forms.add(request.kind)
    assert kinds == set(get_args(ClassifiedStatement))
    assert forms == set(get_args(ShowKind))
