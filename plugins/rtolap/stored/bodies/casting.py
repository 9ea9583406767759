"""Values of a source column → the type of the table's column, with a mask of those that do not fit.

What Arrow reads at once is read at once; only a column that has other values too goes through the grammars of
`casting_text`. A value is never changed silently, with one exception that compatible clients expect: without
strict mode, decimals are rounded (half away from zero) to their column's scale, instants to microseconds.

Between floats, decimals and integers of a file Arrow's casts are not exact. A float stands for the shortest
decimal that reads back as it, which is its text. Arrow rounds it to the column's scale, or expands it to all
its binary digits, and says nothing; and it multiplies a decimal by an inexact power of ten. Here a whole
number is divided by an exact power: that rounds once, as reading does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.base.errors import DefinitionError
from rtolap.column_types import ColumnType
from rtolap.columnar.schema import arrow_type
from rtolap.stored.bodies import casting_text as text

Longs = NDArray[np.int64]
Mask = NDArray[np.bool_]
_EXACT_INTEGERS = 1 << 53  # up to here every integer is a float
_EXACT_POWERS = 22  # up to here every power of ten is one
_DISTINCT = 10**15  # so many digits always come back from a float


class Converted(NamedTuple):
    """A converted column. `lost` marks values that were not null and now are; it is None where there are
    none."""

    values: pa.Array
    lost: Mask | None


def convert(values: pa.Array, kind: ColumnType, *, zone: str, rounds: bool) -> Converted:
    """Convert a column. `zone` is the zone in which an instant with an offset is shown, since the column has
    none. `rounds`: see above.

    Raises DefinitionError for types of which the column can never hold a value.
    """
    target = arrow_type(kind)
    plain = _plain(values, zone)
    if plain.type == target and kind.kind not in ("double", "timestamp", "date"):
        return Converted(plain, None)
    _check_types(plain.type, target)
    converted = _at_once(plain, kind, target, rounds)
    if converted is not None:
        return Converted(converted, None)
    if pa.types.is_floating(plain.type) and pa.types.is_integer(target):
        converted = _integers_of(plain, target)  # a large one has an exponent in its text
    else:
        converted = text.read(_as_text(plain), kind, zone=zone, rounds=rounds)
    lost = np.asarray(pc.and_(converted.is_null(), values.is_valid()).to_numpy(zero_copy_only=False))
    return Converted(converted, lost if lost.any() else None)


def convertible(source: pa.DataType, kind: ColumnType) -> bool:
    """Return True if a column of a file may hold values of the table's type at all."""
    try:
        convert(pa.nulls(0, source), kind, zone="UTC", rounds=True)
    except (DefinitionError, pa.ArrowException):
        return False
    return True


def shown(values: pa.Array) -> list[str | None]:
    """Return each value as a message shows it, whatever a file has put into its column."""
    try:
        return list(_as_text(_plain(values, "UTC")).to_pylist())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return [
            None if is_there is None else f"a {values.type}" for is_there in values.is_valid().to_pylist()
        ]


def _plain(values: pa.Array, zone: str) -> pa.Array:
    """Return the column without encodings, and with instants as the zone's clocks show them."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return values.cast(pa.string())
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind):
        return values.cast(pa.binary())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pc.local_timestamp(values.cast(pa.timestamp(kind.unit, zone)))
    if pa.types.is_null(kind):
        return values.cast(pa.string())
    return values


def _check_types(source: pa.DataType, target: pa.DataType) -> None:
    scalar = (
        pa.types.is_string(source)
        or pa.types.is_boolean(source)
        or pa.types.is_integer(source)
        or pa.types.is_floating(source)
        or pa.types.is_decimal(source)
        or pa.types.is_date(source)
        or pa.types.is_timestamp(source)
        or (pa.types.is_binary(source) and (pa.types.is_string(target) or pa.types.is_binary(target)))
    )
    if not scalar or (pa.types.is_binary(target) and not pa.types.is_binary(source)):
        raise DefinitionError("a column of another type", expected=str(target), found=str(source))


def _at_once(values: pa.Array, kind: ColumnType, target: pa.DataType, rounds: bool) -> pa.Array | None:
    """Return all values, or None when one of them needs a closer look."""
    source = values.type
    if pa.types.is_string(source) and kind.kind in ("int", "bigint") and _holds(values, b"xX"):
        return None  # Arrow reads hexadecimal numbers
    if pa.types.is_boolean(target) and not (pa.types.is_string(source) or pa.types.is_boolean(source)):
        return None
    is_time = pa.types.is_date(source) or pa.types.is_timestamp(source)
    to_time = pa.types.is_date(target) or pa.types.is_timestamp(target)
    if to_time and not (is_time or pa.types.is_string(source)):
        return None  # 20240131 is a day, not a number of days
    if is_time and not to_time:
        return None
    if pa.types.is_timestamp(source) and pa.types.is_date(target):
        return values.cast(target, safe=False) if _in_calendar(values) else None
    try:
        converted = _cast(values, target, rounds)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    if converted is None:
        return None
    if kind.kind == "double" and not pc.all(pc.is_finite(converted), min_count=0).as_py():
        return None
    if kind.kind in ("date", "timestamp") and not _in_calendar(converted):
        return None
    return converted


def _cast(values: pa.Array, target: pa.DataType, rounds: bool) -> pa.Array | None:
    if pa.types.is_floating(values.type) and pa.types.is_decimal(target):
        return _decimals_of(values, target, rounds=rounds)
    if pa.types.is_decimal(values.type) and pa.types.is_floating(target):
        return _doubles_of(values)
    return values.cast(target)


def _holds(values: pa.StringArray, characters: bytes) -> bool:
    data = values.buffers()[2]
    if data is None:
        return False
    offsets = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, values.offset * 4)
    own = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    return any(bool((own == character).any()) for character in characters)


def _in_calendar(values: pa.Array) -> bool:
    """Return whether the years are 1 to 9999."""
    if pa.types.is_date(values.type):
        bounds = pc.min_max(values.cast(pa.date32()).view(pa.int32()))
        low, high = text.FIRST_DAY, text.LAST_MICRO // 86_400_000_000
    else:
        unit = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}[values.type.unit]
        bounds = pc.min_max(values.view(pa.int64()))
        low, high = text.FIRST_MICRO // 1_000_000 * unit, (text.LAST_MICRO // 1_000_000 + 1) * unit - 1
    least, most = bounds["min"].as_py(), bounds["max"].as_py()
    return least is None or (least >= low and most <= high)


def _as_text(values: pa.Array) -> pa.StringArray:
    if pa.types.is_boolean(values.type):
        return values.cast(pa.int8()).cast(pa.string())
    if pa.types.is_binary(values.type):
        return text.utf8(values)
    if pa.types.is_timestamp(values.type):  # a fraction only where there is one
        return pc.replace_substring_regex(values.cast(pa.string()), r"\.0+$", "")
    if pa.types.is_floating(values.type):  # a shorter float has fewer digits, but it is this number
        return values.cast(pa.float64()).cast(pa.string())
    return values if pa.types.is_string(values.type) else values.cast(pa.string())


def _decimals_of(floats: pa.Array, target: pa.Decimal128Type, *, rounds: bool) -> pa.Array | None:
    """Return decimals as their texts are, or rounded half away from zero; None where one needs a closer
    look."""
    if target.scale >= _EXACT_POWERS:
        return None
    written = floats.cast(pa.float64()).fill_null(0.0).to_numpy()
    sizes = np.abs(written)
    # a text with one digit more than the scale is seen exactly, and there are the places between two numbers
    scale = target.scale + 1 if rounds else target.scale
    beyond = 10 ** (target.precision + 1) - 5 if rounds else 10**target.precision
    with np.errstate(over="ignore"):
        digits = np.rint(sizes * 10.0**scale)
    if not bool((digits < min(_DISTINCT, beyond)).all()):  # false for what is no number, too
        return None
    unscaled, nearest = digits.astype(np.int64), digits / 10.0**scale
    if rounds:
        last = unscaled % 10
        unscaled = unscaled // 10 + ((last > 5) | ((last == 5) & (sizes >= nearest)))
    elif not bool((nearest == sizes).all()):
        return None
    unscaled = np.where(written < 0, -unscaled, unscaled)
    words = np.stack([unscaled, unscaled >> 63], axis=1)
    validity = floats.is_valid().buffers()[1] if floats.null_count else None
    return pa.Array.from_buffers(target, len(floats), [validity, pa.py_buffer(words)])


def _doubles_of(decimals: pa.Array) -> pa.Array | None:
    """Return doubles as their texts are; None where one needs a closer look."""
    unscaled = _unscaled(decimals, _EXACT_INTEGERS)
    if unscaled is None:
        return None
    mask = np.asarray(decimals.is_null()) if decimals.null_count else None
    return pa.array(_divided(unscaled, decimals.type.scale), mask=mask)


def _integers_of(floats: pa.Array, target: pa.DataType) -> pa.Array:
    """Return null for fractions and what is out of range."""
    numbers = floats.cast(pa.float64())
    limit = float(1 << (target.bit_width - 1))
    fits = pc.and_(pc.greater_equal(numbers, -limit), pc.less(numbers, limit))
    fits = pc.and_(fits, pc.equal(pc.trunc(numbers), numbers))
    return pc.if_else(fits, numbers, pa.scalar(None, pa.float64())).cast(target)


def _unscaled(decimals: pa.Array, most: int) -> Longs | None:
    """Return the integers that `scale` turns into the decimals, 0 for nulls; None when an integer or the
    scale is too large.
    """
    if not pa.types.is_decimal128(decimals.type) or not 0 <= decimals.type.scale <= _EXACT_POWERS:
        return None
    if not len(decimals):
        return np.zeros(0, np.int64)
    words = np.frombuffer(decimals.buffers()[1], np.int64, 2 * len(decimals), 16 * decimals.offset)
    low, high = words[::2], words[1::2]
    if decimals.null_count:
        is_valid = np.asarray(decimals.is_valid())
        low, high = np.where(is_valid, low, 0), np.where(is_valid, high, 0)
    if not bool((high == low >> 63).all()) or int(low.max()) > most or int(low.min()) < -most:
        return None
    return low


def _divided(unscaled: Longs, scale: int) -> NDArray[np.float64]:
    return np.asarray(unscaled.astype(np.float64) / 10.0**scale)
