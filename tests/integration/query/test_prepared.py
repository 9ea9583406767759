"""The binary protocol, spoken byte by byte over PyMySQL's login: no client library of it is installed."""

from __future__ import annotations

import struct
import threading
import time

import pymysql
import pytest
from rtolap.testing.query_doors import OTHER_USER, SLOW, USER, Doors

pytestmark = pytest.mark.integration
PREPARE, EXECUTE, LONG_DATA, CLOSE = 0x16, 0x17, 0x18, 0x19


class Binary:
    def __init__(self, connection: pymysql.connections.Connection) -> None:
        self.connection = connection
        self.columns = 0

    def prepare(self, sql: str) -> tuple[int, int, int]:
        self.connection._execute_command(PREPARE, sql)
        head = self.connection._read_packet().get_all_data()
        identity, columns, parameters = struct.unpack("<IHH", head[1:9])
        for count in (parameters, columns):
            if count:
                for _ in range(count + 1):  # definitions and their EOF
                    self.connection._read_packet()
        return identity, columns, parameters

    def execute(self, identity: int, columns: int, payload: bytes) -> list[bytes]:
        self.connection._execute_command(EXECUTE, struct.pack("<IBI", identity, 0, 1) + payload)
        assert self.connection._read_packet().get_all_data()[0] == columns
        for _ in range(columns + 1):
            self.connection._read_packet()
        rows = []
        while True:
            packet = self.connection._read_packet()
            if packet.is_eof_packet():
                return rows
            rows.append(packet.get_all_data())


def test_a_statement_is_prepared_executed_twice_and_closed(doors: Doors) -> None:
    with doors.connect() as connection:
        binary = Binary(connection)
        identity, columns, parameters = binary.prepare(
            "select count(*) n, max(price) p, min(flown_on) d, min(day_start) h, avg(price) a, "
            "max(carrier) c from flights where carrier = ? and gate >= ?"
        )
        assert (columns, parameters) == (6, 2)
        types = bytes((0xFD, 0, 8, 0))
        first = binary.execute(identity, columns, b"\0\x01" + types + b"\x02AA" + struct.pack("<q", 1))
        again = binary.execute(identity, columns, b"\0\0" + b"\x02AA" + struct.pack("<q", 1))
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
        assert row[at : at + 12] == struct.pack("<BHBBBBBI", 11, 2013, 1, 1, 0, 0, 0, 0)
        at += 12
        assert struct.unpack("<d", row[at : at + 8])[0] == average
        assert row[at + 8 :] == b"\x02AA"
        connection._execute_command(CLOSE, struct.pack("<I", identity))
        connection.ping(reconnect=False)


def test_null_parameters_null_values_and_long_data(doors: Doors) -> None:
    with doors.connect() as connection:
        binary = Binary(connection)
        identity, columns, _ = binary.prepare("select ? as a, sum(delay) as s from flights where carrier = ?")
        connection._execute_command(LONG_DATA, struct.pack("<IH", identity, 1) + b"no")
        connection._execute_command(LONG_DATA, struct.pack("<IH", identity, 1) + b"ne")
        rows = binary.execute(identity, columns, b"\x01\x01" + bytes((6, 0, 0xFD, 0)))
        assert rows == [b"\0" + bytes((0b1100,))]


def test_an_unknown_statement_is_an_error(doors: Doors) -> None:
    with doors.connect() as connection, pytest.raises(pymysql.err.MySQLError):
        Binary(connection).execute(999, 1, b"")


def integers(*values: int) -> bytes:
    """Parameters of COM_STMT_EXECUTE: no nulls, types sent, 64-bit values."""
    return b"\0\x01" + bytes((8, 0)) * len(values) + b"".join(struct.pack("<q", value) for value in values)


def test_equal_values_are_planned_once_and_others_answer_for_themselves(doors: Doors) -> None:
    with doors.connect() as connection, connection.cursor() as cursor:
        binary = Binary(connection)
        identity, columns, _ = binary.prepare("select count(*) n from flights where gate = ?")
        expected = {}
        for gate in (1, 2):
            cursor.execute(f"select count(*) n from flights where gate = {gate}")
            expected[gate] = cursor.fetchall()[0][0]
        before = doors.service.rewrites
        for gate in (1, 2, 1, 1, 2):
            rows = binary.execute(identity, columns, integers(gate))
            assert [struct.unpack("<q", row[2:])[0] for row in rows] == [expected[gate]]
        assert doors.service.rewrites == before + 2


def test_the_same_text_is_planned_once_over_all_connections(doors: Doors) -> None:
    sql = "select origin, count(*) from flights where carrier = 'UA' group by origin"
    answers = []
    before = doors.service.rewrites
    for _ in range(3):
        with doors.connect() as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            answers.append(sorted(cursor.fetchall(), key=repr))
    assert answers[0] == answers[1] == answers[2]
    assert doors.service.rewrites == before + 1


def test_what_depends_on_the_session_is_never_another_sessions_answer(doors: Doors) -> None:
    found = []
    for user in (USER, OTHER_USER):
        with doors.connect(user=user) as connection, connection.cursor() as cursor:
            cursor.execute("select connection_id(), user()")
            identity, name = cursor.fetchall()[0]
            assert (identity, name.partition("@")[0]) == (connection.thread_id(), user)
            found.append((identity, name))
    assert found[0] != found[1]


def test_a_prepared_query_over_its_time_is_ended_and_can_run_again(doors: Doors) -> None:
    with doors.connect() as connection, connection.cursor() as cursor:
        binary = Binary(connection)
        slow, columns, _ = binary.prepare(f"{SLOW} where ? = 1")
        quick, one, _ = binary.prepare("select count(*) from flights where ? = 1")
        cursor.execute("SET max_execution_time = 200")
        for _ in range(2):
            with pytest.raises(pymysql.err.MySQLError) as caught:
                binary.execute(slow, columns, integers(1))
            assert caught.value.args[0] == 3024
        cursor.execute("SET max_execution_time = DEFAULT")
        assert len(binary.execute(quick, one, integers(1))) == 1


def test_kill_query_ends_a_prepared_query_and_leaves_its_statement(doors: Doors) -> None:
    with doors.connect() as victim, doors.connect() as killer:
        binary = Binary(victim)
        slow, columns, _ = binary.prepare(f"{SLOW} where ? = 1")
        quick, one, _ = binary.prepare("select count(*) from flights where gate = ?")
        first = binary.execute(quick, one, integers(1))
        caught: list[int] = []

        def run() -> None:
            try:
                binary.execute(slow, columns, integers(1))
            except pymysql.err.MySQLError as error:
                caught.append(error.args[0])

        thread = threading.Thread(target=run)
        thread.start()
        deadline = time.monotonic() + 20
        while not is_running(killer, victim.thread_id()):
            assert time.monotonic() < deadline, "the query did not start"
            thread.join(0.02)
        killer.cursor().execute(f"KILL QUERY {victim.thread_id()}")
        thread.join(20)
        assert caught == [1317]
        assert binary.execute(quick, one, integers(1)) == first


def is_running(connection: pymysql.connections.Connection, identity: int) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SHOW PROCESSLIST")
        return any(row[0] == identity and row[4] == "Query" for row in cursor.fetchall())
