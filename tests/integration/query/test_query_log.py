"""The query log over both endpoints: statements with their doors and users, seen by those who may."""

from __future__ import annotations

import pymysql
import pytest
from rtolap.base.errors import QueryError
from rtolap.protocols.query.client import QueryClient

from tests.support.query.query_endpoints import OTHER_USER, PASSWORD, TOKEN, USER, Endpoints

pytestmark = pytest.mark.integration

LOG = (
    "select user_name, door, outcome, rows_returned from information_schema.query_log where statement = '{}'"
)


def test_each_door_logs_its_statements_and_shows_them_to_their_users(endpoints: Endpoints) -> None:
    text = "select carrier, count(*) from flights group by carrier"
    with QueryClient(endpoints.http_url, user=USER, password=PASSWORD) as over_http:
        rows = len(over_http.query(text).rows)
    with endpoints.connect(user=OTHER_USER) as connection, connection.cursor() as cursor:
        cursor.execute(text)
        assert len(cursor.fetchall()) == rows
        cursor.execute(LOG.format(text))
        assert cursor.fetchall() == ((OTHER_USER, "mysql", "ok", rows),)
    with QueryClient(endpoints.http_url, user=USER, password=PASSWORD) as over_http:
        assert over_http.query(LOG.format(text)).rows == ((USER, "http", "ok", rows),)
    with QueryClient(endpoints.http_url, token=TOKEN) as cluster:
        seen = cluster.query(LOG.format(text) + " order by door").rows
    assert seen == ((USER, "http", "ok", rows), (OTHER_USER, "mysql", "ok", rows))


def test_errors_are_logged_and_the_table_is_listed_as_what_it_is(endpoints: Endpoints) -> None:
    text = "select count(*) from nowhere_at_all"
    with QueryClient(endpoints.http_url, token=TOKEN) as cluster:
        with pytest.raises(QueryError, match="unknown table"):
            cluster.query(text)
        ((_, _, outcome, rows),) = cluster.query(LOG.format(text)).rows
        assert (outcome, rows) == ("unknown_table", 0)
    with endpoints.connect(database="information_schema") as connection, connection.cursor() as cursor:
        cursor.execute("show tables like 'query_log'")
        assert [str(name).lower() for (name,) in cursor.fetchall()] == ["query_log"]
        cursor.execute("select started_at, elapsed_ms from query_log limit 1")
        assert [column[1] for column in cursor.description or ()] == [
            pymysql.constants.FIELD_TYPE.DATETIME,
            pymysql.constants.FIELD_TYPE.DOUBLE,
        ]
