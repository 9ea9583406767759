"""The binary protocol, spoken byte by byte over PyMySQL's login: no client library of it is installed."""

from __future__ import annotations

import struct

import pymysql
import pytest
from rtolap.testing.query_doors import Doors

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
