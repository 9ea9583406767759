"""Statements prepared and executed by MySQL's binary protocol."""

from __future__ import annotations

import struct
import threading
import time

import pymysql
import pytest

from tests.support.query.binary_protocol import BinaryProtocol, PreparedStatement, encoded
from tests.support.query.query_endpoints import OTHER_USER, SLOW, USER, Endpoints
from tests.support.waiting import patience_s

pytestmark = pytest.mark.integration


def test_a_statement_is_prepared_executed_twice_and_closed(endpoints: Endpoints) -> None:
    with endpoints.connect() as connection:
        binary = BinaryProtocol(connection)
        prepared = binary.prepare(
            "select count(*) n, max(price) p, min(flown_on) d, min(day_start) h, avg(price) a, "
            "max(carrier) c from flights where carrier = ? and gate >= ?"
        )
        assert (prepared.columns, prepared.parameters) == (6, 2)
        types = bytes((0xFD, 0, 8, 0))
        first = binary.execute(prepared, b"\0\x01" + types + b"\x02AA" + struct.pack("<q", 1))
        again = binary.execute(prepared, b"\0\0" + b"\x02AA" + struct.pack("<q", 1))
        assert first == again
        with connection.cursor() as cursor:
            cursor.execute(
                "select count(*), max(price), avg(price) from flights where carrier = 'AA' and gate >= 1"
            )
            count, price, average = cursor.fetchall()[0]
        row = first[0]
        assert row[:2] == b"\0\0"
        assert struct.unpack("<q", row[2:10])[0] == count
        length = row[10]
        assert row[11 : 11 + length].decode() == str(price)
        at = 11 + length
        assert row[at : at + 5] == struct.pack("<BHBB", 4, 2013, 1, 1)
        at += 5
        assert row[at : at + 5] == struct.pack("<BHBB", 4, 2013, 1, 1)  # a midnight, as MySQL sends one
        at += 5
        assert struct.unpack("<d", row[at : at + 8])[0] == average
        assert row[at + 8 :] == b"\x02AA"
        binary.close(prepared)
        connection.ping(reconnect=False)


def test_null_parameters_null_values_and_long_data(endpoints: Endpoints) -> None:
    with endpoints.connect() as connection:
        binary = BinaryProtocol(connection)
        prepared = binary.prepare("select ? as a, sum(delay) as s from flights where carrier = ?")
        binary.send_long_data(prepared, 1, b"no")
        binary.send_long_data(prepared, 1, b"ne")
        rows = binary.execute(prepared, b"\x01\x01" + bytes((6, 0, 0xFD, 0)))
        assert rows == [b"\0" + bytes((0b1100,))]


def test_an_unknown_statement_is_an_error(endpoints: Endpoints) -> None:
    with endpoints.connect() as connection, pytest.raises(pymysql.err.MySQLError):
        BinaryProtocol(connection).execute(PreparedStatement(999, 1, 0))


def test_equal_values_are_planned_once_and_others_answer_for_themselves(endpoints: Endpoints) -> None:
    with endpoints.connect() as connection, connection.cursor() as cursor:
        binary = BinaryProtocol(connection)
        prepared = binary.prepare("select count(*) n from flights where gate = ?")
        expected = {}
        for gate in (1, 2):
            cursor.execute(f"select count(*) n from flights where gate = {gate}")
            expected[gate] = cursor.fetchall()[0][0]
        before = endpoints.service.rewrites
        for gate in (1, 2, 1, 1, 2):
            rows = binary.execute(prepared, encoded([gate]))
            assert [struct.unpack("<q", row[2:])[0] for row in rows] == [expected[gate]]
        assert endpoints.service.rewrites == before + 2


def test_the_same_text_is_planned_once_over_all_connections(endpoints: Endpoints) -> None:
    sql = "select origin, count(*) from flights where carrier = 'UA' group by origin"
    answers = []
    before = endpoints.service.rewrites
    for _ in range(3):
        with endpoints.connect() as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            answers.append(sorted(cursor.fetchall(), key=repr))
    assert answers[0] == answers[1] == answers[2]
    assert endpoints.service.rewrites == before + 1


def test_what_depends_on_the_session_is_never_another_sessions_answer(endpoints: Endpoints) -> None:
    found = []
    for user in (USER, OTHER_USER):
        with endpoints.connect(user=user) as connection, connection.cursor() as cursor:
            cursor.execute("select connection_id(), user()")
            identity, name = cursor.fetchall()[0]
            assert (identity, name.partition("@")[0]) == (connection.thread_id(), user)
            found.append((identity, name))
    assert found[0] != found[1]


def test_a_prepared_query_over_its_time_is_ended_and_can_run_again(endpoints: Endpoints) -> None:
    with endpoints.connect() as connection, connection.cursor() as cursor:
        binary = BinaryProtocol(connection)
        slow = binary.prepare(f"{SLOW} where ? = 1")
        quick = binary.prepare("select count(*) from flights where ? = 1")
        cursor.execute("SET max_execution_time = 200")
        for _ in range(2):
            with pytest.raises(pymysql.err.MySQLError) as caught:
                binary.execute(slow, encoded([1]))
            assert caught.value.args[0] == 3024
        cursor.execute("SET max_execution_time = DEFAULT")
        assert len(binary.execute(quick, encoded([1]))) == 1


def test_kill_query_ends_a_prepared_query_and_leaves_its_statement(endpoints: Endpoints) -> None:
    with endpoints.connect() as victim, endpoints.connect() as killer:
        binary = BinaryProtocol(victim)
        slow = binary.prepare(f"{SLOW} where ? = 1")
        quick = binary.prepare("select count(*) from flights where gate = ?")
        first = binary.execute(quick, encoded([1]))
        caught: list[int] = []

        def run() -> None:
            try:
                binary.execute(slow, encoded([1]))
            except pymysql.err.MySQLError as error:
                caught.append(error.args[0])

        thread = threading.Thread(target=run)
        thread.start()
        deadline = time.monotonic() + patience_s(20)
        while not is_running(killer, victim.thread_id()):
            assert time.monotonic() < deadline, "the query did not start"
            thread.join(0.02)
        killer.cursor().execute(f"KILL QUERY {victim.thread_id()}")
        thread.join(20)
        assert caught == [1317]
        assert binary.execute(quick, encoded([1])) == first


def is_running(connection: pymysql.connections.Connection, identity: int) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SHOW PROCESSLIST")
        return any(row[0] == identity and row[4] == "Query" for row in cursor.fetchall())
