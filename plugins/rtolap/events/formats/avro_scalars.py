"""Scalars of Avro, in lockstep: each function reads a value of every record of a cursor.

A value that is not wanted is passed over where that is cheaper; what is returned then means nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from rtolap.events.formats.avro_resolution import UNITS
from rtolap.events.formats.lockstep import Cursor
from rtolap.events.formats.reader import Places
from rtolap.model.formats.avro_schema import AvroType

_DECIMAL_BYTES = 16
_UTF8 = pa.string()


def _boolean(kind: AvroType, cursor: Cursor, wanted: bool) -> pa.Array:
    octets = cursor.octets()
    cursor.fail(octets > 1, "a boolean that is neither 0 nor 1")
    return pa.array(octets == 1)


def _int(kind: AvroType, cursor: Cursor, wanted: bool) -> pa.Array:
    numbers = cursor.zigzag()
    narrow = numbers.astype(np.int32)
    cursor.fail(narrow != numbers, "an int of more than 32 bits")
    return pa.array(narrow).cast(pa.date32()) if kind.logical == "date" else pa.array(narrow)


def _long(kind: AvroType, cursor: Cursor, wanted: bool) -> pa.Array:
    numbers = pa.array(cursor.zigzag())
    if kind.logical is None:
        return numbers
    return numbers.cast(pa.timestamp(UNITS[kind.logical.rpartition("-")[2]]))


def _float(kind: AvroType, cursor: Cursor, wanted: bool) -> pa.Array:
    return pa.array(cursor.word(4).astype(np.uint32).view(np.float32))


def _double(kind: AvroType, cursor: Cursor, wanted: bool) -> pa.Array:
    return pa.array(cursor.word(8).view(np.float64))


def _bytes(kind: AvroType, cursor: Cursor, wanted: bool) -> pa.Array:
    lengths = cursor.zigzag()
    return _pieces(kind, cursor, lengths, wanted)


def _fixed(kind: AvroType, cursor: Cursor, wanted: bool) -> pa.Array:
    return _pieces(kind, cursor, np.full(len(cursor), kind.size), wanted)


def _pieces(kind: AvroType, cursor: Cursor, lengths: Places, wanted: bool) -> pa.Array:
    begins = cursor.blob(lengths)
    if not wanted:
        return pa.nulls(0)
    if kind.logical == "decimal":
        return _decimals(kind, cursor, begins, lengths)
    return cursor.records.binary(begins, lengths)


def _decimals(kind: AvroType, cursor: Cursor, begins: Places, lengths: Places) -> pa.Array:
    """Return whole numbers in two's complement, the highest byte first, as decimals of the type's scale."""
    cursor.fail(lengths > _DECIMAL_BYTES, f"a decimal of more than {_DECIMAL_BYTES} bytes")
    text, ends = cursor.records.bytes, begins + lengths
    lengths = np.minimum(lengths, _DECIMAL_BYTES)
    at = ends[:, None] - 1 - np.arange(_DECIMAL_BYTES)  # of the lowest byte first, as Arrow has them
    low = text[np.maximum(at, 0)]
    sign = np.where((lengths > 0) & (text[np.maximum(ends - lengths, 0)] >= 0x80), 0xFF, 0).astype(np.uint8)
    low = np.where(np.arange(_DECIMAL_BYTES) < lengths[:, None], low, sign[:, None])
    return pa.Array.from_buffers(
        pa.decimal128(38, kind.scale), len(lengths), [None, pa.py_buffer(np.ascontiguousarray(low))]
    )


def _enum(kind: AvroType, cursor: Cursor, wanted: bool) -> pa.Array:
    numbers = cursor.zigzag()
    cursor.fail((numbers < 0) | (numbers >= len(kind.symbols)), f"a symbol that {kind} lacks")
    if not wanted:
        return pa.nulls(0)
    inside = np.clip(numbers, 0, max(0, len(kind.symbols) - 1))
    return (
        pa.array(kind.symbols, _UTF8).take(pa.array(inside)) if kind.symbols else pa.nulls(len(cursor), _UTF8)
    )


_Scalar = Callable[[AvroType, Cursor, bool], pa.Array]
SCALARS: Mapping[str, _Scalar] = {
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _float,
    "double": _double,
    "bytes": _bytes,
    "string": _bytes,
    "fixed": _fixed,
    "enum": _enum,
}
