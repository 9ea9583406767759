"""Values of a source column → the type of the table's column, with a mask of those that do not fit.

What Arrow reads at once is read at once; only a column that has other values too goes through the grammars of
`casting_text`. A value is never changed silently, with one exception that compatible clients expect: without
strict mode, decimals are rounded (half away from zero) to their column's scale, instants to microseconds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.base.errors import DefinitionError
from rtolap.columnar.schema import arrow_type
from rtolap.model.types import ColumnType
from rtolap.stored.bodies import casting_numbers as numbers
from rtolap.stored.bodies import casting_text as text

Mask = NDArray[np.bool_]


class Converted(NamedTuple):
    """`lost`: values that were not null and are; None when there is no such."""

    values: pa.Array
    lost: Mask | None


def convert(values: pa.Array, kind: ColumnType, *, zone: str, rounds: bool) -> Converted:
    """`zone`: what an instant with an offset is shown in, as the column has none. `rounds`: see above.

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
        converted = numbers.integers_of(plain, target)  # a large one has an exponent in its text
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
    """Each value as a message shows it, whatever a file has put into its column."""
    try:
        return list(_as_text(_plain(values, "UTC")).to_pylist())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return [
            None if is_there is None else f"a {values.type}" for is_there in values.is_valid().to_pylist()
        ]


def _plain(values: pa.Array, zone: str) -> pa.Array:
    """Less encodings, and with instants as the zone's clocks show them."""
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
    """All values, or None when one of them needs a closer look."""
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
        return numbers.decimals_of(values, target, rounds=rounds)
    if pa.types.is_decimal(values.type) and pa.types.is_floating(target):
        return numbers.doubles_of(values)
    return values.cast(target)


def _holds(values: pa.StringArray, characters: bytes) -> bool:
    data = values.buffers()[2]
    if data is None:
        return False
    offsets = np.frombuffer(values.buffers()[1], np.int32, len(values) + 1, values.offset * 4)
    own = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    return any(bool((own == character).any()) for character in characters)


def _in_calendar(values: pa.Array) -> bool:
    """Years 1 to 9999."""
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
