"""Ordinary clients against the MySQL endpoint."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pymysql
import pytest
import sqlalchemy

from tests.support.query.query_endpoints import SLOW, Endpoints
from tests.support.waiting import patience_s

pytestmark = pytest.mark.integration


def ask(endpoints: Endpoints, sql: str, *values: object) -> list[tuple[object, ...]]:
    with endpoints.connect() as connection, connection.cursor() as cursor:
        cursor.execute(sql, values or None)
        return list(cursor.fetchall())


def test_pymysql_gets_typed_values(endpoints: Endpoints) -> None:
    rows = ask(
        endpoints,
        "select carrier, sum(delay) s, max(price) p, count(*) n, min(flown_on) d, min(hour_start) h, "
        "avg(price) a, max(on_time) o from flights where carrier = %s group by carrier",
        "日本 😀",
    )
    assert len(rows) == 1
    carrier, total, price, count, day, hour, average, on_time = rows[0]
    assert carrier == "日本 😀"
    assert isinstance(total, int)
    assert isinstance(price, Decimal)
    assert isinstance(count, int)
    assert isinstance(average, float)
    assert (str(day), str(hour)) == ("2013-01-01", "2013-01-01 00:00:00")
    assert on_time == 1


def test_nulls_and_empty_results(endpoints: Endpoints) -> None:
    assert ask(endpoints, "select null, count(*) from flights where carrier = 'none'") == [(None, 0)]
    assert ask(endpoints, "select carrier from flights where carrier = 'none' group by carrier") == []


def test_a_wide_text_crosses_packet_bounds(endpoints: Endpoints) -> None:
    rows = ask(endpoints, "select repeat('x', 17000000) as t")
    assert len(str(rows[0][0])) == 17_000_000


@pytest.mark.parametrize(
    ("user", "password"), [("ann", "wrong"), ("ann", ""), ("nobody", "s3cret #1"), ("", "")]
)
def test_a_failed_login_says_the_same_and_closes(endpoints: Endpoints, user: str, password: str) -> None:
    with pytest.raises(pymysql.err.OperationalError) as caught:
        endpoints.connect(user=user, password=password)
    assert caught.value.args[0] == 1045


def test_no_command_is_answered_before_login(endpoints: Endpoints) -> None:
    with socket.create_connection(("127.0.0.1", endpoints.mysql_port), timeout=10) as sock:
        sock.recv(4096)
        sock.sendall(b"\x0a\0\0\1\x03select 42")
        received = b""
        while piece := sock.recv(4096):
            received += piece
        assert b"42" not in received


@pytest.mark.parametrize(
    ("sql", "code", "words"),
    [
        ("select count(*) from nope", 1146, "unknown table 'nope'"),
        ("select sum(nope) from flights", 1054, "unknown column 'nope'"),
        ("select count(* from flights", 1064, "bad SQL"),
        ("delete from flights", 1235, "unsupported"),
        ("create table x (a int)", 1142, "has not the right to define"),
        ("create view x as select 1", 1235, "unsupported"),
        ("select min(weight) from flights", 1105, "measure is not declared"),
        ("select delay + 1 from flights", 1105, "keeps no single events"),
        ("select minute(ts), count(*) from flights group by 1", 1105, "keeps the event time as"),
        ("select * from read_csv('/etc/passwd')", 1105, "table functions"),
        ("use elsewhere", 1049, "unknown database"),
    ],
)
def test_errors_name_what_is_missing(endpoints: Endpoints, sql: str, code: int, words: str) -> None:
    with endpoints.connect() as connection:
        with pytest.raises(pymysql.err.MySQLError) as caught:
            connection.cursor().execute(sql)
        assert caught.value.args[0] == code
        assert words in caught.value.args[1]
        connection.ping(reconnect=False)


def test_catalogue_queries_of_ordinary_clients(endpoints: Endpoints) -> None:
    assert ("rtolap",) in ask(endpoints, "SHOW DATABASES")
    assert ask(endpoints, "SHOW TABLES") == [("airlines",), ("flights",), ("routes",)]
    assert ask(endpoints, "SHOW FULL TABLES FROM `rtolap` LIKE 'fl%%'") == [("flights", "BASE TABLE")]
    assert ("carrier", "varchar(65535)", "YES", "", None, "") in ask(endpoints, "DESCRIBE flights")
    assert len(ask(endpoints, "SHOW FULL COLUMNS FROM flights")) == len(
        ask(endpoints, "SHOW COLUMNS FROM flights")
    )
    assert "CREATE TABLE `flights`" in str(ask(endpoints, "SHOW CREATE TABLE flights")[0][1])
    assert ask(endpoints, "SHOW VARIABLES LIKE 'sql\\_mode'")[0][0] == "sql_mode"
    assert len(ask(endpoints, "SHOW VARIABLES WHERE Variable_name in ('version', 'autocommit')")) == 2
    assert ask(endpoints, "SHOW WARNINGS") == []
    assert ask(endpoints, "SHOW KEYS FROM flights") == []
    assert len(ask(endpoints, "SHOW PROCESSLIST")) >= 1
    assert ask(endpoints, "select @@version_comment, database(), @@session.autocommit") == [
        ("rtolap", "rtolap", 1)
    ]
    assert ask(
        endpoints,
        "select table_name from information_schema.tables where table_schema = 'rtolap' order by table_name",
    ) == [("airlines",), ("flights",), ("routes",)]
    assert ask(
        endpoints,
        "select column_name, data_type from information_schema.columns where table_name = 'flights' "
        "and ordinal_position = 1",
    ) == [("hour_start", "datetime")]


def test_any_set_is_accepted(endpoints: Endpoints) -> None:
    with endpoints.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode=CONCAT(@@sql_mode, ',STRICT_TRANS_TABLES'), autocommit=1, NAMES utf8mb4")
        cursor.execute("SET NAMES utf8mb4")
        cursor.execute("START TRANSACTION")
        cursor.execute("select 1")
        assert cursor.fetchall() == ((1,),)


def test_sqlalchemy_reflects_and_selects(endpoints: Endpoints) -> None:
    engine = sqlalchemy.create_engine(endpoints.sqlalchemy_url)
    inspector = sqlalchemy.inspect(engine)
    assert inspector.get_table_names() == ["airlines", "flights", "routes"]
    table = sqlalchemy.Table("flights", sqlalchemy.MetaData(), autoload_with=engine)
    assert {"carrier", "hour_start", "delay"} <= set(table.columns.keys())
    with engine.connect() as connection:
        textual = connection.execute(
            sqlalchemy.text("select carrier, count(*) from flights where gate = :gate group by carrier"),
            {"gate": 1},
        ).all()
        query = (
            sqlalchemy.select(table.c.carrier, sqlalchemy.func.count())
            .where(table.c.gate == 1)
            .group_by(table.c.carrier)
        )
        assert sorted(map(repr, connection.execute(query).all())) == sorted(map(repr, textual))
    engine.dispose()


def test_every_reflected_column_can_be_selected(endpoints: Endpoints) -> None:
    """`select(table)` names each of them; an event time that is kept for conditions only is none."""
    engine = sqlalchemy.create_engine(endpoints.sqlalchemy_url)
    for name in sqlalchemy.inspect(engine).get_table_names():
        table = sqlalchemy.Table(name, sqlalchemy.MetaData(), autoload_with=engine)
        listed = [row[0] for row in ask(endpoints, f"SHOW COLUMNS FROM {name}")]
        assert list(table.columns.keys()) == listed
        named = "select column_name from information_schema.columns where table_name = %s"
        assert [row[0] for row in ask(endpoints, f"{named} order by ordinal_position", name)] == listed
        with engine.connect() as connection:
            found = connection.execute(sqlalchemy.select(table))
            assert list(found.keys()) == listed
            assert found.all()
    flights = sqlalchemy.Table("flights", sqlalchemy.MetaData(), autoload_with=engine)
    assert "ts" not in flights.columns
    assert flights.comment == "cube; event time ts: in conditions and date functions"
    counted = (
        sqlalchemy.select(sqlalchemy.func.count())
        .select_from(flights)
        .where(sqlalchemy.column("ts") >= "2013-01-01")
    )
    with engine.connect() as connection:
        assert connection.execute(counted).scalar_one() == 400
    engine.dispose()


def test_the_mariadb_command_line_asks(endpoints: Endpoints, tmp_path: Path) -> None:
    binary = shutil.which("mariadb") or shutil.which("mysql")
    if binary is None:
        pytest.skip("no mariadb or mysql command line: apt-get install mariadb-client")
    options = tmp_path / "client.cnf"
    options.write_text('[client]\nuser=ann\npassword="s3cret #1"\n')
    done = subprocess.run(
        [
            *(binary, f"--defaults-file={options}", "-h", "127.0.0.1", "-P", str(endpoints.mysql_port)),
            *("--default-character-set=utf8mb4", "--skip-ssl", "-B", "-N", "rtolap"),
            *(
                "-e",
                "show tables; select carrier, count(*) from flights group by carrier order by 2 desc limit 1",
            ),
        ],
        capture_output=True,
        text=True,
        timeout=patience_s(60),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:3] == ["airlines", "flights", "routes"]
    assert len(done.stdout.splitlines()) == 4


def test_a_query_over_its_time_is_ended(endpoints: Endpoints) -> None:
    with endpoints.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION max_execution_time = 300")
        with pytest.raises(pymysql.err.MySQLError) as caught:
            cursor.execute(SLOW)
        assert caught.value.args[0] == 3024
        cursor.execute("SET SESSION max_execution_time = DEFAULT")
        cursor.execute("select count(*) from flights")
        assert cursor.fetchall() == ((400,),)


def test_kill_query_interrupts_only_ones_own(endpoints: Endpoints) -> None:
    with endpoints.connect() as victim, endpoints.connect() as killer, endpoints.connect(user="bob") as other:
        identity = victim.thread_id()
        caught: list[BaseException] = []

        def run() -> None:
            try:
                victim.cursor().execute(SLOW)
            except pymysql.err.MySQLError as error:
                caught.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        _until(
            lambda: (
                ("Query", "query") in [(row[4], row[6]) for row in _processes(killer) if row[0] == identity]
            )
        )
        with pytest.raises(pymysql.err.MySQLError):
            other.cursor().execute(f"KILL QUERY {identity}")
        killer.cursor().execute(f"KILL QUERY {identity}")
        thread.join(20)
        assert [error.args[0] for error in caught] == [1317]
        assert ask(endpoints, "select 1") == [(1,)]
        killer.cursor().execute(f"KILL {identity}")
        with pytest.raises(pymysql.err.MySQLError):
            victim.cursor().execute("select 1")


def test_a_client_that_goes_away_frees_its_query(endpoints: Endpoints) -> None:
    leaving = endpoints.connect()
    identity = leaving.thread_id()
    leaving._execute_command(3, SLOW)
    with endpoints.connect() as watcher:
        _until(lambda: any(row[0] == identity and row[4] == "Query" for row in _processes(watcher)))
        leaving._force_close()
        _until(lambda: all(row[0] != identity for row in _processes(watcher)))


def _processes(connection: pymysql.connections.Connection) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute("SHOW PROCESSLIST")
        return list(cursor.fetchall())


def _until(condition: Any, timeout_s: float = 20) -> None:
    deadline = time.monotonic() + patience_s(timeout_s)
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        pause.wait(0.02)
