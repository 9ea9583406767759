"""Values of cells as HBase's `Bytes` encodes them → typed columns.

    short, int, long    2, 4, 8 bytes, big-endian, two's complement
    float, double       4, 8 bytes, IEEE 754, big-endian
    boolean             1 byte, 0 is false
    decimal             int32 scale, then the unscaled number: two's complement, big-endian, of any length
    string, json        UTF-8
    bytes               as they are

A value that its declared type cannot read becomes null in the column and is marked as refused, with its
reason: the bytes stay in the batch, so nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.base.errors import DefinitionError
from rtolap.base.undecodable import UNDECODABLE
from rtolap.column_types import ColumnType, parse_type

_FIXED: Final[dict[str, tuple[str, pa.DataType]]] = {
    "short": (">i2", pa.int16()),
    "int": (">i4", pa.int32()),
    "long": (">i8", pa.int64()),
    "float": (">f4", pa.float32()),
    "double": (">f8", pa.float64()),
    "boolean": ("u1", pa.bool_()),
}
VALUE_TYPES: Final = (*_FIXED, "decimal(p,s)", "string", "json", "bytes")

_SCALE_BYTES: Final = 4
_LONG_BYTES: Final = 8

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class DecodedValues:
    """The values of a column.

    Attributes:
        column: the typed values; null where a value is absent or refused.
        refused: True for present values that the type does not accept.
        expected: what the type accepts, for the reason of a refusal.
    """

    column: pa.Array
    refused: Mask
    expected: str


def decode_values(values: pa.BinaryArray, value_type: str) -> DecodedValues:
    """Decode values, where nulls stay null. Raises DefinitionError for an unknown type."""
    if value_type == "bytes":
        return DecodedValues(values, np.zeros(len(values), bool), "any bytes")
    if value_type in _FIXED:
        return _decode_fixed(values, *_FIXED[value_type])
    if value_type == "string":
        return _decode_string(values)
    if value_type == "json":
        return _decode_json(values)
    return _decode_decimal(values, _decimal(value_type))


def _decimal(value_type: str) -> ColumnType:
    kind = parse_type(value_type) if value_type.startswith("decimal") else None
    if kind is None:
        raise DefinitionError(
            "unknown type of a cell's value", expected=f"one of {', '.join(VALUE_TYPES)}", found=value_type
        )
    return kind


def _present(values: pa.BinaryArray) -> Mask:
    return np.asarray(values.is_valid().to_numpy(zero_copy_only=False), bool)


def _lengths(values: pa.BinaryArray) -> NDArray[np.int64]:
    offsets = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, 4 * values.offset)
    ends: NDArray[np.int64] = offsets.astype(np.int64)
    return ends[1:] - ends[:-1]


def _bytes_of(values: pa.BinaryArray, places: NDArray[np.intp], size: int) -> NDArray[np.uint8]:
    """Return the bytes of the values at `places`, each of which has `size` of them, as a matrix with a row
    each.
    """
    if not len(places):
        return np.empty((0, size), np.uint8)
    taken = values.take(pa.array(places))
    first = int(np.frombuffer(taken.buffers()[1], np.int32, 1)[0])
    return np.frombuffer(taken.buffers()[2], np.uint8, len(places) * size, first).reshape(-1, size)


def _decode_fixed(values: pa.BinaryArray, encoding: str, target: pa.DataType) -> DecodedValues:
    size = np.dtype(encoding).itemsize
    present = _present(values)
    fits = present & (_lengths(values) == size) if len(values) else present
    numbers = np.zeros(len(values), np.dtype(encoding).newbyteorder("="))
    numbers[fits] = _bytes_of(values, np.flatnonzero(fits), size).view(encoding).ravel()
    column = pa.array(numbers != 0 if target == pa.bool_() else numbers, target, mask=~fits)
    return DecodedValues(column, present & ~fits, f"{size} bytes")


def _decode_string(values: pa.BinaryArray) -> DecodedValues:
    try:
        return DecodedValues(values.cast(pa.string()), np.zeros(len(values), bool), "UTF-8")
    except pa.ArrowInvalid:
        return _accept_where(values, _is_utf8, "UTF-8")


def _decode_json(values: pa.BinaryArray) -> DecodedValues:
    return _accept_where(values, _is_json, "JSON in UTF-8")


def _accept_where(values: pa.BinaryArray, is_right: Callable[[bytes], bool], expected: str) -> DecodedValues:
    right = np.array([value is not None and is_right(value) for value in values.to_pylist()], bool)
    accepted = pc.if_else(pa.array(right), values, pa.scalar(None, pa.binary()))
    return DecodedValues(accepted.cast(pa.string()), _present(values) & ~right, expected)


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_json(value: bytes) -> bool:
    try:
        msgspec.json.decode(value)
    except UNDECODABLE:
        return False
    return True


def _decode_decimal(values: pa.BinaryArray, kind: ColumnType) -> DecodedValues:
    """Decode decimals. Numbers of at most 8 bytes are read in columns, longer ones one after the other.

    A number with more digits than the type has is refused, never rounded.
    """
    target = pa.decimal128(kind.precision, kind.scale)
    expected = f"an int32 scale and a number that decimal({kind.precision},{kind.scale}) holds exactly"
    present = _present(values)
    if not len(values):
        return DecodedValues(pa.array([], target), present, expected)
    lengths = _lengths(values) - _SCALE_BYTES
    limbs = np.zeros((len(values), 2), np.int64)  # of 128 bits, the low one first
    fits = np.zeros(len(values), bool)
    for size in np.unique(lengths[present & (lengths >= 1) & (lengths <= _LONG_BYTES)]).tolist():
        places = np.flatnonzero(present & (lengths == size))
        matrix = _bytes_of(values, places, _SCALE_BYTES + size)
        scales = np.ascontiguousarray(matrix[:, :_SCALE_BYTES]).view(">i4").ravel()
        unscaled = _signed(matrix[:, _SCALE_BYTES:])
        exact, rescaled = _rescaled(unscaled, kind.scale - scales.astype(np.int64), kind.precision)
        fits[places] = exact
        limbs[places, 0], limbs[places, 1] = rescaled, rescaled >> 63
    slow = np.flatnonzero(present & ~fits & (lengths >= 1))
    if len(slow):
        for place, value in zip(slow.tolist(), values.take(pa.array(slow)).to_pylist(), strict=True):
            number = _exact_number(value, kind)
            if number is not None:
                fits[place] = True
                limbs[place] = np.frombuffer(number.to_bytes(16, "little", signed=True), np.int64)
    valid = pa.py_buffer(np.packbits(fits, bitorder="little").tobytes())
    column = pa.Array.from_buffers(target, len(values), [valid, pa.py_buffer(limbs)])
    return DecodedValues(column, present & ~fits, expected)


def _signed(matrix: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the number in each row, which is a big-endian number in two's complement of at most 8 bytes."""
    count, size = matrix.shape
    wide = np.zeros((count, _LONG_BYTES), np.uint8)
    wide[:, _LONG_BYTES - size :] = matrix
    wide[:, : _LONG_BYTES - size] = np.where(matrix[:, :1] >= 128, 255, 0)
    return wide.view(">i8").ravel().astype(np.int64)


def _rescaled(
    unscaled: NDArray[np.int64], shift: NDArray[np.int64], precision: int
) -> tuple[Mask, NDArray[np.int64]]:
    """Multiply by 10 to the `shift`; the mask holds where that is exact within 63 bits and the precision."""
    shiftable = (shift >= -18) & (shift <= 18)
    factor = np.where(shiftable, 10 ** np.abs(np.where(shiftable, shift, 0)), 1)
    up = shift >= 0
    limit = min(10**precision, 2**63) - 1
    magnitude_fits = np.abs(np.where(unscaled == np.iinfo(np.int64).min, 0, unscaled)) <= limit // factor
    exact_up = shiftable & up & magnitude_fits & (unscaled != np.iinfo(np.int64).min)
    quotient = unscaled // factor
    exact_down = shiftable & ~up & (quotient * factor == unscaled) & (np.abs(quotient) <= limit)
    product = np.where(exact_up, unscaled, 0) * np.where(up, factor, 1)
    return exact_up | exact_down, np.where(up, product, np.where(exact_down, quotient, 0))


def _exact_number(value: bytes, kind: ColumnType) -> int | None:
    """Return the unscaled number at the type's scale; None where the type cannot hold it exactly."""
    if len(value) > 64:  # more digits than any decimal has, even with many zeros behind
        return None
    scale = int.from_bytes(value[:_SCALE_BYTES], "big", signed=True)
    unscaled = int.from_bytes(value[_SCALE_BYTES:], "big", signed=True)
    shift = kind.scale - scale
    if abs(shift) > 200:
        return 0 if unscaled == 0 else None
    number = unscaled * 10**shift if shift >= 0 else _divided(unscaled, 10**-shift)
    return number if number is not None and abs(number) < 10**kind.precision else None


def _divided(number: int, divisor: int) -> int | None:
    quotient, rest = divmod(number, divisor)
    return None if rest else quotient
