"""Scalars of Protobuf: what stands in a record → values, by the type of the field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import FieldDescriptor
from numpy.typing import NDArray

from rtolap.events.classify import Leaf
from rtolap.events.formats.lockstep import Records
from rtolap.events.formats.reader import Places

Words = NDArray[np.uint64]

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5  # wire types
_WIRE: Mapping[int, int] = {
    FieldDescriptor.TYPE_DOUBLE: FIXED64,
    FieldDescriptor.TYPE_FIXED64: FIXED64,
    FieldDescriptor.TYPE_SFIXED64: FIXED64,
    FieldDescriptor.TYPE_FLOAT: FIXED32,
    FieldDescriptor.TYPE_FIXED32: FIXED32,
    FieldDescriptor.TYPE_SFIXED32: FIXED32,
    FieldDescriptor.TYPE_STRING: LENGTH,
    FieldDescriptor.TYPE_BYTES: LENGTH,
    FieldDescriptor.TYPE_MESSAGE: LENGTH,
}


def wire_type(field: FieldDescriptor) -> int:
    """Return how a value of the field stands in a record."""
    return _WIRE.get(field.type, VARINT)


def values_of(field: FieldDescriptor, leaf: Leaf, text: Records, raw: Words, lengths: Places) -> pa.Array:
    """Return the values of a field. `raw`: numbers as they stand, or where a text begins."""
    if wire_type(field) == LENGTH:
        return text.binary(raw.view(np.int64), lengths)
    if field.type == FieldDescriptor.TYPE_ENUM and leaf.type.kind == "string":
        return _names(field, raw)
    return pa.array(number_values(field, raw))


def number_values(field: FieldDescriptor, raw: Words) -> NDArray[Any]:
    """Return the numbers of a field; of an enum those of its values."""
    return _NUMBERS[field.type](raw)


def _names(field: FieldDescriptor, raw: Words) -> pa.Array:
    """Return the names of an enum's values. One that the schema does not know is its number, as text."""
    numbers = _int32(raw)
    assert field.enum_type is not None, "a field of an enum"
    known = {value.number: value.name for value in reversed(field.enum_type.values)}
    order = np.array(sorted(known), np.int32)
    at = np.minimum(np.searchsorted(order, numbers), len(order) - 1)
    names = pa.array([known[int(number)] for number in order], pa.string()).take(pa.array(at))
    is_known = order[at] == numbers
    if is_known.all():
        return names
    return pc.if_else(pa.array(is_known), names, pa.array(numbers).cast(pa.string()))


def _int32(raw: Words) -> NDArray[np.int32]:
    return raw.astype(np.uint32).view(np.int32)


def _zigzag(raw: Words) -> NDArray[np.int64]:
    return ((raw >> np.uint64(1)) ^ (~(raw & np.uint64(1)) + np.uint64(1))).view(np.int64)


_NUMBERS: Mapping[int, Callable[[Words], NDArray[Any]]] = {
    FieldDescriptor.TYPE_DOUBLE: lambda raw: raw.view(np.float64),
    FieldDescriptor.TYPE_FLOAT: lambda raw: raw.astype(np.uint32).view(np.float32),
    FieldDescriptor.TYPE_INT64: lambda raw: raw.view(np.int64),
    FieldDescriptor.TYPE_SFIXED64: lambda raw: raw.view(np.int64),
    FieldDescriptor.TYPE_UINT64: lambda raw: raw,
    FieldDescriptor.TYPE_FIXED64: lambda raw: raw,
    FieldDescriptor.TYPE_INT32: _int32,
    FieldDescriptor.TYPE_SFIXED32: _int32,
    FieldDescriptor.TYPE_ENUM: _int32,
    FieldDescriptor.TYPE_UINT32: lambda raw: raw.astype(np.uint32),
    FieldDescriptor.TYPE_FIXED32: lambda raw: raw.astype(np.uint32),
    FieldDescriptor.TYPE_SINT32: _zigzag,
    FieldDescriptor.TYPE_SINT64: _zigzag,
    FieldDescriptor.TYPE_BOOL: lambda raw: raw != 0,
}
