"""The prepared statements of one connection: what it holds of each, and the parameters of an execution."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa

from rtolap.base.errors import QueryError, RtolapError
from rtolap.query.memory_budget import LONG_DATA, PREPARED, Account
from rtolap.query.mysql import codes
from rtolap.query.mysql.packets import PacketFields
from rtolap.query.sql.statement import SqlStatement

STATEMENTS_MAX = 1000
LONG_DATA_BYTES_MAX = 16 << 20  # of one statement
STATEMENT_BYTES, COLUMN_BYTES, PARAMETER_BYTES, POSITION_BYTES = 4096, 512, 256, 256  # with their objects
_UNSIGNED = 0x80
_WIDTHS = {codes.TINY: 1, codes.SHORT: 2, codes.LONG: 4, codes.INT24: 4, codes.LONGLONG: 8}


@dataclass
class PreparedStatement:
    """A prepared statement of one connection.

    Attributes:
        statement: a query, or the text of a SHOW, SET or the like.
        names: names of the parameters, in order.
        asks_for_cursor: True if its last execution requested a cursor.
        refused: the error for which long data was discarded; None if there was none.
    """

    statement: SqlStatement | str
    columns: pa.Schema
    names: tuple[str, ...]
    types: list[tuple[int, int]] = field(default_factory=list)
    long_data: dict[int, bytearray] = field(default_factory=dict)
    asks_for_cursor: bool = False
    refused: RtolapError | None = None

    @property
    def long_data_bytes(self) -> int:
        return sum(map(len, self.long_data.values())) + POSITION_BYTES * len(self.long_data)

    @property
    def estimated_bytes(self) -> int:
        """Return an estimate of what it takes, on the large side."""
        text = self.statement if isinstance(self.statement, str) else self.statement.text
        names = sum(COLUMN_BYTES + 8 * len(column.name) for column in self.columns)
        return STATEMENT_BYTES + 8 * len(text) + names + PARAMETER_BYTES * len(self.names)


class PreparedStatements:
    """Prepared statements by the number under which the client knows them.

    Raises QueryError for unknown statements and for too many, and OverBudget for more than the account has
    room for.
    """

    def __init__(self, account: Account) -> None:
        self._account = account
        self._statements: dict[int, PreparedStatement] = {}
        self._next = 1
        self._statements_bytes = 0
        self._long_bytes = 0

    def check_room(self) -> None:
        if len(self._statements) >= STATEMENTS_MAX:
            raise QueryError(
                "too many prepared statements", expected=f"at most {STATEMENTS_MAX} a connection"
            )

    def add_statement(self, prepared: PreparedStatement) -> int:
        self._account.reserve(PREPARED, self._statements_bytes + prepared.estimated_bytes)
        self._statements_bytes += prepared.estimated_bytes
        identity, self._next = self._next, self._next + 1
        self._statements[identity] = prepared
        return identity

    def bound(self, fields: PacketFields) -> tuple[PreparedStatement, list[object]]:
        """Return the statement and the values of a COM_STMT_EXECUTE."""
        prepared = self._find(fields.integer(4))
        prepared.asks_for_cursor = bool(fields.integer(1) & codes.CURSOR_TYPE_READ_ONLY)
        fields.read(4)  # the iteration count is always 1
        try:
            if prepared.refused is not None:
                raise prepared.refused
            values, prepared.types = decode_parameters(
                fields, len(prepared.names), prepared.types, prepared.long_data
            )
        finally:
            self._forget_long_data(prepared)
        return prepared, list(values)

    def long_data(self, fields: PacketFields) -> None:
        """Append long data of a parameter. It has no response, so the execution raises the error."""
        prepared = self._statements.get(fields.integer(4))
        position, data = fields.integer(2), fields.rest()
        if prepared is None or prepared.refused is not None:
            return
        try:
            if position >= len(prepared.names):
                raise QueryError(
                    f"long data of parameter {position + 1}", expected=f"at most {len(prepared.names)}"
                )
            if prepared.long_data_bytes + len(data) > LONG_DATA_BYTES_MAX:
                raise codes.PacketTooLarge(
                    "packet too large: the parameters", expected=f"at most {LONG_DATA_BYTES_MAX} bytes in all"
                )
            more = len(data) + (0 if position in prepared.long_data else POSITION_BYTES)
            self._account.reserve(LONG_DATA, self._long_bytes + more)
        except RtolapError as error:
            self._forget_long_data(prepared)
            prepared.refused = error.with_traceback(None)  # which would keep the packet
            return
        self._long_bytes += more
        prepared.long_data.setdefault(position, bytearray()).extend(data)

    def _forget_long_data(self, prepared: PreparedStatement) -> None:
        self._long_bytes -= prepared.long_data_bytes
        prepared.long_data, prepared.refused = {}, None
        self._account.reserve(LONG_DATA, self._long_bytes)

    def fetched(self, fields: PacketFields) -> None:
        """Answer a COM_STMT_FETCH: a cursor has no rows, since all rows were sent."""
        identity = fields.integer(4)
        if not self._find(identity).asks_for_cursor:
            raise QueryError(f"prepared statement {identity} has no cursor", action="execute it with one")

    def reset(self, fields: PacketFields) -> None:
        self._forget_long_data(self._find(fields.integer(4)))

    def close(self, fields: PacketFields) -> None:
        prepared = self._statements.pop(fields.integer(4), None)
        if prepared is not None:
            self._forget_long_data(prepared)
            self._statements_bytes -= prepared.estimated_bytes
            self._account.reserve(PREPARED, self._statements_bytes)

    def clear(self) -> None:
        self._statements.clear()
        self._statements_bytes = self._long_bytes = 0
        self._account.reserve(PREPARED, 0)
        self._account.reserve(LONG_DATA, 0)

    def _find(self, identity: int) -> PreparedStatement:
        try:
            return self._statements[identity]
        except KeyError:
            raise QueryError(f"unknown prepared statement {identity}") from None


def decode_parameters(
    fields: PacketFields, count: int, known: list[tuple[int, int]], long_data: Mapping[int, bytearray]
) -> tuple[list[object], list[tuple[int, int]]]:
    """Return values of a COM_STMT_EXECUTE, bound natively by the engine afterwards, and their types; those of
    the last execution hold where none are sent.

    Raises QueryError for what is no value of its type, ConnectionClosed where the packet ends too early.
    """
    if count == 0:
        return [], known
    bitmap = fields.read((count + 7) // 8)
    if fields.integer(1):
        known = [(fields.integer(1), fields.integer(1)) for _ in range(count)]
    if not known and _all_null(bitmap, count):
        return [None] * count, known  # Connector/J sends no types as long as there are only NULLs
    if len(known) != count:
        raise QueryError("parameters without types", action="send new-params-bound with the first execution")
    values: list[object] = []
    for position, (type_code, flags) in enumerate(known):
        if bitmap[position // 8] >> (position % 8) & 1:
            values.append(None)
            continue
        try:
            if position in long_data:
                values.append(_text(long_data[position], type_code))
            else:
                values.append(_decode(fields, type_code, bool(flags & _UNSIGNED)))
        except (
            ValueError,
            ArithmeticError,
        ) as error:  # a month 13, a number that is none, days beyond counting
            raise QueryError(
                f"bad value of parameter {position + 1}",
                expected=f"one of type {type_code}",
                found=str(error)[:100],
            ) from error
    return values, known


def _all_null(bitmap: bytes, count: int) -> bool:
    return all(bitmap[position // 8] >> (position % 8) & 1 for position in range(count))


def _decode(fields: PacketFields, type_code: int, unsigned: bool) -> object:
    if type_code in _WIDTHS:
        return int.from_bytes(fields.read(_WIDTHS[type_code]), "little", signed=not unsigned)
    if type_code == codes.NULL:
        return None
    if type_code == codes.DOUBLE:
        return struct.unpack("<d", fields.read(8))[0]
    if type_code == codes.FLOAT:
        return struct.unpack("<f", fields.read(4))[0]
    if type_code in (codes.DATE, codes.DATETIME, codes.TIMESTAMP):
        return _instant(fields, type_code)
    if type_code == codes.TIME:
        return _duration(fields)
    return _text(fields.string(), type_code)


def _text(data: bytes | bytearray, type_code: int) -> object:
    if type_code in (0, codes.NEWDECIMAL):
        value = Decimal(data.decode())
        if not value.is_finite():
            raise ValueError("a DECIMAL is a number")
        return value
    try:
        return data.decode()  # clients send texts as bytes, and bytes as texts
    except UnicodeDecodeError:
        return bytes(data)


def _instant(fields: PacketFields, type_code: int) -> object:
    length = fields.integer(1)
    part = PacketFields(fields.read(length))
    if length == 0:
        return None
    year, month, day = part.integer(2), part.integer(1), part.integer(1)
    if type_code == codes.DATE and length == 4:
        return date(year, month, day)
    hour, minute, second = (part.integer(1), part.integer(1), part.integer(1)) if length > 4 else (0, 0, 0)
    micros = part.integer(4) if length > 7 else 0
    return datetime(year, month, day, hour, minute, second, micros)


def _duration(fields: PacketFields) -> timedelta:
    length = fields.integer(1)
    part = PacketFields(fields.read(length))
    if length == 0:
        return timedelta(0)
    negative = part.integer(1)
    days = part.integer(4)
    value = timedelta(days=days, hours=part.integer(1), minutes=part.integer(1), seconds=part.integer(1))
    if length > 8:
        value += timedelta(microseconds=part.integer(4))
    return -value if negative else value
