"""Arrow types as MySQL's: column definitions, and columns brought into a form that the row encoders know."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rtolap.query.durations import durations_us, is_duration, time_text
from rtolap.query.mysql import codes
from rtolap.query.mysql.packets import length_encoded_string

UNSIGNED, BINARY_FLAG = 32, 128
DEFINITIONS_KEPT = 1024
NAME_KEPT_MAX = 64  # characters


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
    made = _remembered if len(name) <= NAME_KEPT_MAX else _definition
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


_remembered = lru_cache(DEFINITIONS_KEPT)(_definition)


def as_text(column: Any) -> Any:
    """The column as strings in MySQL's text protocol, nulls kept. Binary stays as it is."""
    kind = column.type
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
