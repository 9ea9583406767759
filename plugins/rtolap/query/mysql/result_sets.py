"""Arrow tables as result sets of MySQL: column definitions, rows of the text and of the binary protocol.

Columns become lists of encoded values by one C-level pass each; rows are joined by `map` over their zip.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rtolap.query.durations import DAY_US, durations_us, is_duration, time_text
from rtolap.query.mysql import codes
from rtolap.query.mysql.packets import length_encoded, length_encoded_string

UNSIGNED, BINARY_FLAG = 32, 128
DEFINITIONS_CACHED_MAX = 1024
NAME_CHARACTERS_MAX = 64  # characters
_NULL_TEXT = b"\xfb"
_SHORT = tuple(length_encoded(length) for length in range(251))
_JOIN = b"".join
_INT32, _INT64, _DOUBLE = struct.Struct("<i").pack, struct.Struct("<q").pack, struct.Struct("<d").pack
_UINT64, _INT8 = struct.Struct("<Q").pack, struct.Struct("<b").pack
_DATE, _DATETIME = struct.Struct("<BHBB").pack, struct.Struct("<BHBBBBB").pack
_DATETIME_US, _TIME = struct.Struct("<BHBBBBBI").pack, struct.Struct("<BBIBBB").pack
_TIME_US = struct.Struct("<BBIBBBI").pack


@dataclass(frozen=True)
class ColumnKind:
    type_code: int
    length: int
    decimals: int = 0
    charset: int = codes.BINARY_CHARSET
    flags: int = BINARY_FLAG


_TEXT = ColumnKind(codes.VAR_STRING, 262_140, 0, codes.UTF8MB4, 0)


def kind_of(kind: pa.DataType) -> ColumnKind:
    if pa.types.is_boolean(kind):
        return ColumnKind(codes.TINY, 4)  # a length of 1 would be BIT in Java
    if pa.types.is_uint64(kind):
        return ColumnKind(codes.LONGLONG, 20, flags=BINARY_FLAG | UNSIGNED)
    if pa.types.is_integer(kind):
        return (
            ColumnKind(codes.LONG, 11)
            if kind.bit_width <= 32 and kind != pa.uint32()
            else ColumnKind(codes.LONGLONG, 20)
        )
    if pa.types.is_floating(kind):
        return ColumnKind(codes.DOUBLE, 22, 31)
    if pa.types.is_decimal(kind):
        return ColumnKind(codes.NEWDECIMAL, kind.precision + 2, kind.scale)
    if pa.types.is_date(kind):
        return ColumnKind(codes.DATE, 10)
    if pa.types.is_timestamp(kind):
        return ColumnKind(codes.DATETIME, 26, 6)
    if is_duration(kind):
        return ColumnKind(codes.TIME, 17, 6)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return ColumnKind(codes.BLOB, 65_535)
    if pa.types.is_null(kind):
        return ColumnKind(codes.NULL, 0)
    return _TEXT


def definition(name: str, kind: pa.DataType, *, table: str = "", database: str = "") -> bytes:
    made = _remembered if len(name) <= NAME_CHARACTERS_MAX else _definition
    return made(name, kind, table, database)


def _definition(name: str, kind: pa.DataType, table: str, database: str) -> bytes:
    described = kind_of(kind)
    return (
        length_encoded_string(b"def")
        + length_encoded_string(database.encode())
        + length_encoded_string(table.encode())
        + length_encoded_string(table.encode())
        + length_encoded_string(name.encode())
        + length_encoded_string(name.encode())
        + b"\x0c"
        + struct.pack(
            "<HIBHB2x",
            described.charset,
            described.length,
            described.type_code,
            described.flags,
            described.decimals,
        )
    )


_remembered = lru_cache(DEFINITIONS_CACHED_MAX)(_definition)


def as_text(column: Any) -> Any:
    """Return the column as strings of MySQL's text protocol. Nulls stay null, binary columns unchanged."""
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if pa.types.is_integer(kind):
        return column.cast(pa.string())
    if pa.types.is_dictionary(kind):
        return as_text(column.dictionary_decode())
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8()).cast(pa.string())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return column.cast(pa.large_binary())
    if pa.types.is_timestamp(kind):
        local = column.cast(pa.timestamp("us"))
        return pc.strftime(local, format="%Y-%m-%d %H:%M:%S")
    if pa.types.is_floating(kind):
        return pa.array([None if value is None else repr(value) for value in column.to_pylist()], pa.string())
    if is_duration(kind):
        texts = (None if value is None else time_text(value) for value in durations_us(column))
        return pa.array(texts, pa.string())
    if pa.types.is_nested(kind):
        return pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())
    return column.cast(pa.string())


def text_rows(batch: pa.RecordBatch) -> Iterator[bytes]:
    columns = [_text_column(column) for column in batch.columns]
    return map(_JOIN, zip(*columns, strict=True))


def binary_rows(batch: pa.RecordBatch) -> Iterator[bytes]:
    """Yield rows of the binary protocol: header 0, a bitmap of nulls shifted by two bits, then the values
    that are not null."""
    columns = [_binary_column(column) for column in batch.columns]
    bitmaps = _null_bitmaps(batch)
    return map(_JOIN, zip(repeat(b"\0", batch.num_rows), bitmaps, *columns, strict=True))


def _text_column(column: pa.Array[Any]) -> list[bytes]:
    """Return a column's values as packets have them. A prefix of one byte is looked up, since a call for each
    value takes longer than all the rest."""
    values = as_text(column)
    if pa.types.is_string(values.type):
        values = values.view(pa.binary())  # the same bytes
    return [
        _NULL_TEXT
        if value is None
        else (_SHORT[len(value)] if len(value) < len(_SHORT) else length_encoded(len(value))) + value
        for value in values.to_pylist()
    ]


def _encode_text(value: str | bytes | None) -> bytes:
    if value is None:
        return _NULL_TEXT
    return length_encoded_string(value if isinstance(value, bytes) else value.encode())


def _binary_column(column: pa.Array[Any]) -> Iterable[bytes]:
    kind = column.type
    encode: Callable[..., bytes]
    if pa.types.is_null(kind):
        return [b""] * len(column)
    if pa.types.is_boolean(kind):
        encode = _INT8
    elif pa.types.is_uint64(kind):
        encode = _UINT64
    elif pa.types.is_integer(kind):
        encode = _INT32 if kind.bit_width <= 32 and kind != pa.uint32() else _INT64
    elif pa.types.is_floating(kind):
        encode = _DOUBLE
    elif pa.types.is_date(kind):
        encode = _encode_date
    elif pa.types.is_timestamp(kind):
        column, encode = column.cast(pa.timestamp("us")), _encode_datetime
    elif is_duration(kind):
        return [b"" if value is None else _encode_time(value) for value in durations_us(column)]
    else:
        return map(_encode_present, as_text(column).to_pylist())
    return [b"" if value is None else encode(value) for value in column.to_pylist()]


def _encode_present(value: str | bytes | None) -> bytes:
    return b"" if value is None else _encode_text(value)


def _encode_date(value: date) -> bytes:
    return _DATE(4, value.year, value.month, value.day)


def _encode_datetime(value: datetime) -> bytes:
    """Encode a date and time in as few bytes as MySQL does."""
    if value.microsecond:
        return _DATETIME_US(11, *value.timetuple()[:6], value.microsecond)
    if value.hour or value.minute or value.second:
        return _DATETIME(7, *value.timetuple()[:6])
    return _encode_date(value)


def _encode_time(duration_us: int) -> bytes:
    days, rest_us = divmod(abs(duration_us), DAY_US)
    seconds, micros = divmod(rest_us, 1_000_000)
    parts = (duration_us < 0, days, seconds // 3600, seconds // 60 % 60, seconds % 60)
    if micros:
        return _TIME_US(12, *parts, micros)
    return _TIME(8, *parts) if duration_us else b"\0"


def _null_bitmaps(batch: pa.RecordBatch) -> list[bytes]:
    width = (batch.num_columns + 7 + 2) // 8
    if not any(column.null_count for column in batch.columns):
        return [bytes(width)] * batch.num_rows
    bits = [0] * batch.num_rows
    for position, column in enumerate(batch.columns):
        if column.null_count:
            flag = 1 << (position + 2)
            bits = [
                bit | flag if null else bit
                for bit, null in zip(bits, column.is_null().to_pylist(), strict=True)
            ]
    return [bit.to_bytes(width, "little") for bit in bits]
