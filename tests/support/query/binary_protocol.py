"""Prepared statements by MySQL's binary protocol, spoken byte by byte over PyMySQL's login.

No client library of it is installed, and none of our server's code is used.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pymysql
from pymysql.protocol import FieldDescriptorPacket

PREPARE, EXECUTE, LONG_DATA, CLOSE = 0x16, 0x17, 0x18, 0x19
_Packet = Any  # PyMySQL's packets and fields have no types
_LONGLONG, _NULL, _DATE, _DATETIME, _NEWDECIMAL, _VAR_STRING = 8, 6, 10, 12, 246, 253
_UNSIGNED_FLAG = 32
_FIXED = {1: "<b", 2: "<h", 3: "<i", 4: "<f", 5: "<d", _LONGLONG: "<q"}


class PreparedStatement(NamedTuple):
    identity: int
    columns: int
    parameters: int


class BinaryProtocol:
    """Over a connection of its caller. Raises pymysql.MySQLError for every error that the server answers."""

    def __init__(self, connection: pymysql.connections.Connection[Any]) -> None:
        self._connection: Any = connection  # its packets are private there

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[tuple[object, ...]]:
        """Return the rows of a statement that is prepared, executed once and closed."""
        prepared = self.prepare(sql)
        fields, packets = self._executed(prepared, encoded(values))
        self.close(prepared)
        return [_decoded(packet, fields) for packet in packets]

    def prepare(self, sql: str) -> PreparedStatement:
        self._connection._execute_command(PREPARE, sql)
        head = self._read().get_all_data()
        prepared = PreparedStatement(*struct.unpack("<IHH", head[1:9]))
        for count in (prepared.parameters, prepared.columns):
            if count:
                for _ in range(count + 1):  # definitions and their EOF
                    self._read()
        return prepared

    def execute(self, prepared: PreparedStatement, payload: bytes = b"") -> list[bytes]:
        """Return the rows as they came. `payload` has the parameters, see `encoded`."""
        return [packet.get_all_data() for packet in self._executed(prepared, payload)[1]]

    def send_long_data(self, prepared: PreparedStatement, position: int, data: bytes) -> None:
        self._connection._execute_command(LONG_DATA, struct.pack("<IH", prepared.identity, position) + data)

    def close(self, prepared: PreparedStatement) -> None:
        self._connection._execute_command(CLOSE, struct.pack("<I", prepared.identity))

    def _executed(self, prepared: PreparedStatement, payload: bytes) -> tuple[list[_Packet], list[_Packet]]:
        head = struct.pack("<IBI", prepared.identity, 0, 1)  # no cursor; the iteration count is always 1
        self._connection._execute_command(EXECUTE, head + payload)
        assert self._read().get_all_data()[0] == prepared.columns
        fields = [self._connection._read_packet(FieldDescriptorPacket) for _ in range(prepared.columns)]
        self._read()
        packets = []
        while not (packet := self._read()).is_eof_packet():
            packets.append(packet)
        return fields, packets

    def _read(self) -> _Packet:
        return self._connection._read_packet()


def encoded(values: Sequence[object]) -> bytes:
    """Return parameters of COM_STMT_EXECUTE, each in the type that a client library sends for it."""
    if not values:
        return b""
    nulls = sum(1 << position for position, value in enumerate(values) if value is None)
    codes, datas = zip(*map(_encoded, values), strict=True)
    types = b"".join(bytes((code, 0)) for code in codes)
    return nulls.to_bytes((len(values) + 7) // 8, "little") + b"\x01" + types + b"".join(datas)


def _encoded(value: object) -> tuple[int, bytes]:
    match value:
        case None:
            return _NULL, b""
        case int():
            return _LONGLONG, struct.pack("<q", value)
        case Decimal():
            return _NEWDECIMAL, _with_length(str(value).encode())
        case str():
            return _VAR_STRING, _with_length(value.encode())
        case datetime():
            day = (value.year, value.month, value.day)
            return _DATETIME, struct.pack(
                "<BHBBBBBI", 11, *day, value.hour, value.minute, value.second, value.microsecond
            )
        case date():
            return _DATE, struct.pack("<BHBB", 4, value.year, value.month, value.day)
    raise TypeError(f"no parameter: {value!r}")


def _with_length(data: bytes) -> bytes:
    assert len(data) < 251, "one byte of length"
    return bytes((len(data),)) + data


def _decoded(packet: _Packet, fields: Sequence[_Packet]) -> tuple[object, ...]:
    """Decode header 0, a bitmap of nulls shifted by two bits, then the values that are not null."""
    assert packet.read(1) == b"\0"
    nulls = int.from_bytes(packet.read((len(fields) + 7 + 2) // 8), "little") >> 2
    return tuple(
        None if nulls >> position & 1 else _value(packet, field) for position, field in enumerate(fields)
    )


def _value(packet: _Packet, field: _Packet) -> object:
    code = field.type_code
    if code in _FIXED:
        form = _FIXED[code].upper() if field.flags & _UNSIGNED_FLAG else _FIXED[code]
        return struct.unpack(form, packet.read(struct.calcsize(form)))[0]
    if code in (_DATE, _DATETIME):
        return _instant(packet.read(packet.read(1)[0]), code)
    text = packet.read_length_coded_string().decode()
    return Decimal(text) if code == _NEWDECIMAL else text


def _instant(data: bytes, code: int) -> date:
    year, month, day = struct.unpack("<HBB", data[:4])
    if code == _DATE:
        assert len(data) == 4, "a DATE has no time"
        return date(year, month, day)
    hour, minute, second = data[4:7] if len(data) > 4 else (0, 0, 0)
    micros = int.from_bytes(data[7:11], "little")
    return datetime(year, month, day, hour, minute, second, micros)
