"""MySQL Connector/J and MariaDB Connector/J over the MySQL server: JDBC, called through py4j.

Nothing here can wait for ever: a driver gives up an answer after SOCKET_TIMEOUT_MS, py4j a call after
CALL_TIMEOUT_S.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError
from rtolap.stack.artifacts import fetch_jars, find_java, pyspark_jars

from tests.support.query.query_endpoints import PASSWORD, SLOW, USER, Endpoints
from tests.support.waiting import patience_s

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
SOCKET_TIMEOUT_MS = 120_000
CALL_TIMEOUT_S = 180.0
NOTICED_S = 60.0
IVY = """<ivy-module version="2.0"><info organisation="local" module="jdbc-drivers"/>
<configurations><conf name="drivers"/></configurations><dependencies>
<dependency org="com.mysql" name="mysql-connector-j" rev="9.3.0" transitive="false"
 conf="drivers-&gt;default"/>
<dependency org="org.mariadb.jdbc" name="mariadb-java-client" rev="3.5.3" transitive="false"
 conf="drivers-&gt;default"/>
</dependencies></ivy-module>
"""
CURSOR = {"useServerPrepStmts": "true", "useCursorFetch": "true", "defaultFetchSize": "2"}
WAYS: dict[str, dict[str, str]] = {
    "default": {},
    "server_prepared": {"useServerPrepStmts": "true", "cachePrepStmts": "true"},
    "cursor_fetch": CURSOR,
    "shows": {"useInformationSchema": "false"},
    "ansi": {"sessionVariables": "sql_mode='ANSI_QUOTES'"},
    "ansi_prepared": {"sessionVariables": "sql_mode='ANSI'", **CURSOR},
}
TYPES = (
    "select 7 as whole, 1.50 as exact, 0.25e0 as near, 'Köln – 日本 😀' as town, null as nothing, "
    "date '2013-01-02' as day, timestamp '2013-01-02 03:04:05.000006' as moment, "
    "cast('23:00:01' as time) as span, true as yes"
)
ROW = (
    *("7", "1.50", "0.25", "Köln – 日本 😀", None),
    *("2013-01-02", "2013-01-02 03:04:05.000006", "23:00:01", "1"),
)
SQL_VARCHAR, SQL_TIMESTAMP, SQL_DATE, SQL_DECIMAL, SQL_INTEGER = 12, 93, 91, 3, 4
Connect = Callable[..., Any]


@pytest.fixture(scope="module")
def jvm() -> Iterator[JavaGateway]:
    drivers = sorted((fetch_jars(IVY, ("drivers",), "the JDBC drivers") / "drivers").glob("*.jar"))
    py4j = next(pyspark_jars().glob("py4j-*.jar"))
    port, token, process = launch_gateway(
        jarpath=str(py4j),
        classpath=os.pathsep.join(map(str, [py4j, *drivers])),
        javaopts=["-Xmx256m", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8"],
        java_path=find_java(),
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
    )
    parameters = GatewayParameters(port=port, auth_token=token, read_timeout=CALL_TIMEOUT_S)
    gateway = JavaGateway(gateway_parameters=parameters)
    yield gateway
    gateway.shutdown()
    process.kill()
    process.wait(patience_s(60))


@pytest.fixture(params=["mysql", "mariadb"])
def connect(request: pytest.FixtureRequest, jvm: JavaGateway, endpoints: Endpoints) -> Iterator[Connect]:
    """Connects with the driver's options; what is opened is closed after the test."""
    opened = []

    def open_one(**options: str) -> Any:
        properties = jvm.jvm.java.util.Properties()
        settings = {
            "user": USER,
            "password": PASSWORD,
            "connectTimeout": str(SOCKET_TIMEOUT_MS),
            "socketTimeout": str(SOCKET_TIMEOUT_MS),
            **options,
        }
        for name, value in settings.items():
            properties.setProperty(name, value)
        url = f"jdbc:{request.param}://127.0.0.1:{endpoints.mysql_port}/rtolap"
        opened.append(jvm.jvm.java.sql.DriverManager.getConnection(url, properties))
        return opened[-1]

    yield open_one
    for connection in opened:
        connection.close()


def rows_of(results: Any) -> list[tuple[str | None, ...]]:
    """As texts; closes the results."""
    count = results.getMetaData().getColumnCount()
    rows = []
    while results.next():
        rows.append(tuple(results.getString(position) for position in range(1, count + 1)))
    results.close()
    return rows


def plain_times(row: tuple[str | None, ...]) -> tuple[str | None, ...]:
    """In the binary protocol MariaDB's driver writes all six digits that a time may have."""
    return tuple(None if text is None else text.removesuffix(".000000") for text in row)


def ask(connection: Any, sql: str) -> list[tuple[str | None, ...]]:
    statement = connection.createStatement()
    try:
        return rows_of(statement.executeQuery(sql))
    finally:
        statement.close()


def named(results: Any, *names: str) -> list[tuple[str | None, ...]]:
    rows = []
    while results.next():
        rows.append(tuple(results.getString(name) for name in names))
    results.close()
    return rows


@pytest.mark.parametrize("way", WAYS)
def test_every_type_arrives_and_a_null_may_be_bound_first(connect: Connect, way: str) -> None:
    connection = connect(**WAYS[way])
    assert [plain_times(row) for row in ask(connection, TYPES)] == [ROW]
    prepared = connection.prepareStatement(TYPES)
    assert [plain_times(row) for row in rows_of(prepared.executeQuery())] == [ROW]
    results = prepared.executeQuery()
    assert results.next()
    assert (results.getInt(1), results.getDouble(3), results.getBoolean(9)) == (7, 0.25, True)
    assert results.getBigDecimal("exact") == Decimal("1.50")
    assert results.getTimestamp("moment").toString() == ROW[6]
    assert results.getDate("day").toString() == "2013-01-02"
    assert results.getTime("span").toString() == "23:00:01"
    assert results.getObject("nothing") is None
    assert results.wasNull()
    prepared.close()
    midnight = connection.prepareStatement("select min(day_start) from flights").executeQuery()
    assert midnight.next()
    assert midnight.getTimestamp(1).toString() == "2013-01-01 00:00:00.0"
    counting = connection.prepareStatement(
        "select ? as first, ? as second, count(*) as n from airlines where carrier <> ? or ? is null"
    )
    counting.setNull(1, SQL_VARCHAR)
    counting.setString(2, "ö'\"\\")
    counting.setString(3, "AA")
    counting.setNull(4, SQL_INTEGER)
    assert rows_of(counting.executeQuery()) == [(None, "ö'\"\\", "3")]
    counting.setInt(1, -7)
    counting.setNull(2, SQL_DECIMAL)
    counting.setLong(4, 2**40)
    assert rows_of(counting.executeQuery()) == [("-7", None, "2")]
    counting.close()


@pytest.mark.parametrize("way", WAYS)
def test_a_bound_value_compares_as_the_value_that_is_written(
    connect: Connect, jvm: JavaGateway, way: str
) -> None:
    connection = connect(**WAYS[way])
    condition = "carrier = {} and flown_on = {} and day_start >= {} and fare_class <= {}"
    count = "select count(*), sum(delay) from flights where " + condition
    written = ask(connection, count.format("'AA'", "'2013-01-02'", "'2013-01-01 00:00:00'", "1.25"))
    assert int(written[0][0] or 0) > 0
    prepared = connection.prepareStatement(count.format(*"????"))
    prepared.setString(1, "AA")
    prepared.setDate(2, jvm.jvm.java.sql.Date.valueOf("2013-01-02"))
    prepared.setTimestamp(3, jvm.jvm.java.sql.Timestamp.valueOf("2013-01-01 00:00:00"))
    prepared.setBigDecimal(4, jvm.jvm.java.math.BigDecimal("1.25"))
    assert rows_of(prepared.executeQuery()) == written
    prepared.setNull(1, SQL_VARCHAR)
    assert rows_of(prepared.executeQuery()) == [("0", None)]
    prepared.close()


@pytest.mark.parametrize("way", WAYS)
def test_bytes_stay_bytes_and_compare_as_the_text_that_they_are(connect: Connect, way: str) -> None:
    connection = connect(**WAYS[way])
    prepared = connection.prepareStatement(
        "select hex(?) as a, hex(?) as b, count(*) as n from airlines where carrier = ? or carrier = ?"
    )
    given = (b"\0\xff'\\\x1a\n\x80", "ö'".encode(), b"AA", b"\xfe")
    for position, value in enumerate(given, start=1):
        prepared.setBytes(position, value)
    assert rows_of(prepared.executeQuery()) == [("00FF275C1A0A80", "C3B627", "1")]
    prepared.close()


@pytest.mark.parametrize("way", WAYS)
def test_no_rows_and_more_rows_than_are_fetched_at_a_time_both_end(connect: Connect, way: str) -> None:
    connection = connect(**WAYS[way])
    prepared = connection.prepareStatement("select name from airlines where carrier >= ? order by carrier")
    prepared.setFetchSize(2)
    for least, expected in (("nobody", []), ("", ["American", "United", "Nobody"]), ("nobody", [])):
        prepared.setString(1, least)
        assert rows_of(prepared.executeQuery()) == [(name,) for name in expected]
    prepared.close()
    statement = connection.createStatement()
    statement.setFetchSize(2)
    grouped = "select carrier, count(*) as events from flights {} group by carrier order by carrier"
    assert rows_of(statement.executeQuery(grouped.format("where carrier = 'nobody'"))) == []
    found = rows_of(statement.executeQuery(grouped.format("")))
    assert len(found) == 6
    assert sum(int(events or 0) for _, events in found) == 400
    assert rows_of(statement.executeQuery("show tables like 'nobody'")) == []
    assert rows_of(statement.executeQuery("show tables")) == [("airlines",), ("flights",), ("routes",)]
    statement.close()


@pytest.mark.parametrize("way", WAYS)
def test_metadata_lists_what_there_is(connect: Connect, jvm: JavaGateway, way: str) -> None:
    connection = connect(**WAYS[way])
    meta = connection.getMetaData()
    assert ("rtolap",) in rows_of(meta.getCatalogs())
    every = rows_of(meta.getTables("rtolap", None, "%", None))
    assert [row[2] for row in every] == ["airlines", "flights", "routes"]
    kinds = jvm.new_array(jvm.jvm.java.lang.String, 1)
    kinds[0] = "TABLE"
    some = named(meta.getTables(None, None, "fl%", kinds), "TABLE_CAT", "TABLE_NAME", "TABLE_TYPE")
    assert some == [("rtolap", "flights", "TABLE")]
    columns = named(
        meta.getColumns("rtolap", None, "flights", "%"),
        *("COLUMN_NAME", "DATA_TYPE", "COLUMN_SIZE", "DECIMAL_DIGITS", "IS_NULLABLE"),
    )
    described = ask(connection, "describe flights")
    assert [column[0] for column in columns] == [column[0] for column in described]
    assert ("fare_class", str(SQL_DECIMAL), "6", "2", "YES") in columns
    kind_of = {name: kind for name, kind, *_ in columns}
    assert kind_of["carrier"] == str(SQL_VARCHAR)
    assert kind_of["hour_start"] == str(SQL_TIMESTAMP)
    assert kind_of["flown_on"] == str(SQL_DATE)
    assert kind_of["gate"] == str(SQL_INTEGER)
    assert len(rows_of(meta.getTypeInfo())) > 20
    for none_of in (
        lambda: meta.getIndexInfo("rtolap", None, "flights", False, False),
        lambda: meta.getPrimaryKeys("rtolap", None, "flights"),
        lambda: meta.getImportedKeys("rtolap", None, "flights"),
        lambda: meta.getExportedKeys("rtolap", None, "flights"),
        lambda: meta.getProcedures("rtolap", None, "%"),
        lambda: meta.getProcedureColumns("rtolap", None, "%", "%"),
        lambda: meta.getFunctions("rtolap", None, "%"),
        lambda: meta.getFunctionColumns("rtolap", None, "%", "%"),
        lambda: meta.getTables("rtolap", None, "no\\_body", None),
    ):
        assert rows_of(none_of()) == []
    assert connection.isValid(60)


@pytest.mark.parametrize("way", WAYS)
def test_an_alias_that_is_a_column_means_what_it_means_in_mysql(connect: Connect, way: str) -> None:
    connection = connect(**WAYS[way])
    base = dict(ask(connection, "select carrier, count(*) as n from flights group by carrier"))
    aliased = (
        "select lower(carrier) as carrier, count(*) as gate from flights where carrier is not null "
        "group by carrier having gate > ? order by carrier desc"
    )
    prepared = connection.prepareStatement(aliased)
    prepared.setInt(1, 60)
    expected = [(name.lower(), n) for name, n in base.items() if name and int(n or 0) > 60]
    assert sorted(rows_of(prepared.executeQuery())) == sorted(expected)
    assert expected
    prepared.close()


@pytest.mark.parametrize("way", ["ansi", "ansi_prepared"])
def test_double_quotes_are_names_where_the_session_says_so(connect: Connect, way: str) -> None:
    ansi, plain = connect(**WAYS[way]), connect()
    ((mode,),) = ask(ansi, "select @@sql_mode")
    assert "ANSI_QUOTES" in (mode or "").split(",")
    quoted = 'select count("carrier") as "zwei ""Worte""", \'"x"\' as x from airlines where ? = \'a"\''
    prepared = ansi.prepareStatement(quoted)
    prepared.setString(1, 'a"')
    results = prepared.executeQuery()
    assert results.getMetaData().getColumnLabel(1) == 'zwei "Worte"'
    assert rows_of(results) == [("3", '"x"')]
    assert rows_of(prepared.executeQuery()) == [("3", '"x"')]
    text = 'select "carrier" as c from airlines order by c'
    for _ in range(2):
        assert ask(ansi, text) == [("AA",), ("UA",), ("ZZ",)]
        assert ask(plain, text) == [("carrier",)] * 3


@pytest.mark.parametrize("way", ["default", "server_prepared", "cursor_fetch"])
def test_a_statement_ends_at_its_timeout_and_when_it_is_cancelled(
    connect: Connect, endpoints: Endpoints, way: str
) -> None:
    connection = connect(**WAYS[way])
    ((identity,),) = ask(connection, "select connection_id()")
    statement = connection.prepareStatement(SLOW)
    statement.setQueryTimeout(1)
    # or, where the driver's timer was quicker than the statement began: at the session's time limit
    with pytest.raises(Py4JJavaError, match=r"(?i)timeout|interrupted|took longer"):
        statement.executeQuery()
    statement.setQueryTimeout(0)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(statement.executeQuery)
        with endpoints.connect(read_timeout=60) as watching:
            deadline = time.monotonic() + NOTICED_S
            while not is_running(watching, int(identity or 0)):
                assert not running.done()
                assert time.monotonic() < deadline, "the statement did not start"
                threading.Event().wait(0.02)
        statement.cancel()
        with pytest.raises(Py4JJavaError, match=r"(?i)cancel|interrupted"):
            running.result(CALL_TIMEOUT_S)
    with contextlib.closing(statement):
        assert ask(connection, "select 1") == [("1",)]


def is_running(watching: Any, connection_id: int) -> bool:
    with watching.cursor() as cursor:
        cursor.execute("show processlist")
        return any(row[0] == connection_id and row[4] == "Query" for row in cursor.fetchall())


@pytest.mark.parametrize("way", ["default", "server_prepared", "cursor_fetch"])
def test_warnings_and_errors_arrive_as_jdbcs(connect: Connect, way: str) -> None:
    connection = connect(**WAYS[way])
    statement = connection.prepareStatement("select count(distinct passenger) as people from flights")
    assert len(rows_of(statement.executeQuery())) == 1
    warning = statement.getWarnings()
    assert warning.getErrorCode() == 30003
    assert "is approximate" in warning.getMessage()
    rows_of(statement.executeQuery())
    assert [row[:2] for row in ask(connection, "show warnings")] == [("Note", "30003")]
    for sql, number, state in (
        ("select * from nowhere", 1146, "42S02"),
        ("select nothing from flights", 1054, "42S22"),
        ("select from where", 1064, "42000"),
    ):
        with pytest.raises(Py4JJavaError) as caught:
            ask(connection, sql)
        error = caught.value.java_exception
        assert (error.getErrorCode(), error.getSQLState()) == (number, state)
    assert ask(connection, "select 1") == [("1",)]
