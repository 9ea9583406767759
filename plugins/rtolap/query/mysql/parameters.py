"""Parameters of COM_STMT_EXECUTE → Python values, bound natively by the engine afterwards."""

from __future__ import annotations

import struct
from datetime import date, datetime, timedelta
from decimal import Decimal

from rtolap.base.errors import QueryError
from rtolap.query.mysql import codes
from rtolap.query.mysql.packets import Fields

_UNSIGNED = 0x80
_WIDTHS = {codes.TINY: 1, codes.SHORT: 2, codes.LONG: 4, codes.INT24: 4, codes.LONGLONG: 8}


def decode_parameters(
    fields: Fields, count: int, known: list[tuple[int, int]], long_data: dict[int, bytes]
) -> tuple[list[object], list[tuple[int, int]]]:
    """Values and their types; the types of the last execution hold where none are sent.

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


def _decode(fields: Fields, type_code: int, unsigned: bool) -> object:
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


def _text(data: bytes, type_code: int) -> object:
    if type_code in (0, codes.NEWDECIMAL):
        value = Decimal(data.decode())
        if not value.is_finite():
            raise ValueError("a DECIMAL is a number")
        return value
    if type_code in (249, 250, 251, codes.BLOB):
        try:
            return data.decode()  # clients send strings as BLOB too
        except UnicodeDecodeError:
            return data
    return data.decode("utf-8", "replace")


def _instant(fields: Fields, type_code: int) -> object:
    length = fields.integer(1)
    part = Fields(fields.read(length))
    if length == 0:
        return None
    year, month, day = part.integer(2), part.integer(1), part.integer(1)
    if type_code == codes.DATE and length == 4:
        return date(year, month, day)
    hour, minute, second = (part.integer(1), part.integer(1), part.integer(1)) if length > 4 else (0, 0, 0)
    micros = part.integer(4) if length > 7 else 0
    return datetime(year, month, day, hour, minute, second, micros)


def _duration(fields: Fields) -> timedelta:
    length = fields.integer(1)
    part = Fields(fields.read(length))
    if length == 0:
        return timedelta(0)
    negative = part.integer(1)
    days = part.integer(4)
    value = timedelta(days=days, hours=part.integer(1), minutes=part.integer(1), seconds=part.integer(1))
    if length > 8:
        value += timedelta(microseconds=part.integer(4))
    return -value if negative else value
