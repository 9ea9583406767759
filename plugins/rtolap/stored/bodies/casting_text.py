"""Text → typed values by grammar, null where a text is no such value. For the batches that have odd ones.

| type | grammar (spaces around are passed over) |
|---|---|
| boolean | `true`, `false`, `1`, `0`, in any case |
| int, bigint | `[+-]digits[.zeros]`, within range |
| double | a decimal number, with exponent or not; finite |
| decimal(p,s) | the same, exactly; digits beyond the scale only where rounding is allowed |
| date, timestamp | `2024-01-31`, `2024/1/31`, `20240131`, `20240131123456`, |
| | with ` ` or `T` and `12[:34[:56[.123456]]]`, with `Z` or `+08:00` |
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.column_types import ColumnType
from rtolap.columnar.schema import arrow_type

_INTEGER = r"^(?P<sign>[+-]?)0*(?P<digits>\d{1,19})(?:\.0*)?$"
_DOUBLE = r"^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?$"
_DECIMAL = r"^[+-]?0*(?:\d{1,38}(?:\.(?:\d{0,38}?)0*)?|\.\d{1,38}?0*)(?:[eE][+-]?\d{1,2})?$"
_TIME = (
    r"^(?P<year>\d{4})(?:[-/](?P<month>\d{1,2})[-/](?P<day>\d{1,2})|(?P<compact>\d{4}))"
    r"(?:[T ]?(?P<packed>\d{6})|[T ](?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2}))?)?)?"
    r"(?:\.(?P<fraction>\d{1,18}))?(?P<zone>Z|[+-]\d{2}:?\d{2})?$"
)
_LIMITS = {"int": 1 << 31, "bigint": 1 << 63}
_WIDE = pa.decimal256(76, 38)
_DAY_MICROS = 86_400_000_000
FIRST_DAY = -719_162  # 0001-01-01
FIRST_MICRO = FIRST_DAY * _DAY_MICROS
LAST_MICRO = 253_402_300_799_999_999  # 9999-12-31
Longs = NDArray[np.int64]


def read(values: pa.StringArray, kind: ColumnType, *, zone: str, rounds: bool) -> pa.Array:
    """Return the values, null for null and for text outside of the grammar."""
    if kind.kind == "string":
        return values
    encoded = values.dictionary_encode()
    texts = pc.utf8_trim_whitespace(encoded.dictionary)
    match kind.kind:
        case "boolean":
            parsed = _booleans(texts)
        case "int" | "bigint":
            parsed = _integers(texts, kind)
        case "double":
            parsed = _doubles(texts)
        case "decimal":
            parsed = _decimals(texts, kind, rounds)
        case "date":
            micros, known = _instants(texts, zone, rounds)
            days = pa.array((micros // _DAY_MICROS).astype(np.int32), mask=~known)
            parsed = days.cast(pa.date32())
        case "timestamp":
            micros, known = _instants(texts, zone, rounds)
            parsed = pa.array(micros, mask=~known).cast(pa.timestamp("us"))
        case _:
            parsed = pa.nulls(len(texts), arrow_type(kind))
    return parsed.take(encoded.indices)


def utf8(values: pa.BinaryArray) -> pa.StringArray:
    """Return null for bytes that are no UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return _each(values, pa.string())


def _matching(texts: pa.StringArray, pattern: str) -> pa.StringArray:
    return pc.if_else(pc.match_substring_regex(texts, pattern), texts, pa.scalar(None, pa.string()))


def _booleans(texts: pa.StringArray) -> pa.BooleanArray:
    lower = pc.utf8_lower(texts)
    yes = pc.is_in(lower, pa.array(["true", "1"]))
    no = pc.is_in(lower, pa.array(["false", "0"]))
    return pc.if_else(pc.or_(yes, no), yes, pa.scalar(None, pa.bool_()))


def _integers(texts: pa.StringArray, kind: ColumnType) -> pa.Array:
    parts = pc.extract_regex(texts, _INTEGER)
    magnitude = pc.struct_field(parts, "digits").cast(pa.decimal128(20, 0))
    minus = pc.equal(pc.struct_field(parts, "sign"), "-")
    numbers = pc.if_else(minus, pc.negate(magnitude), magnitude)
    limit = _LIMITS[kind.kind]
    return _within(numbers, -limit, limit - 1).cast(arrow_type(kind))


def _within(numbers: pa.Array, least: int, most: int) -> pa.Array:
    fits = pc.and_(
        pc.greater_equal(numbers, pa.scalar(least, numbers.type)),
        pc.less_equal(numbers, pa.scalar(most, numbers.type)),
    )
    return pc.if_else(fits, numbers, pa.scalar(None, numbers.type))


def _doubles(texts: pa.StringArray) -> pa.Array:
    doubles = _matching(texts, _DOUBLE).cast(pa.float64())
    return pc.if_else(pc.is_finite(doubles), doubles, pa.scalar(None, pa.float64()))


def _decimals(texts: pa.StringArray, kind: ColumnType, rounds: bool) -> pa.Array:
    exact = _each(_matching(texts, _DECIMAL), _WIDE)
    if rounds and exact.null_count:  # with more digits behind the point than are looked at, it may be nothing
        tiny = pc.less(pc.abs(_doubles(texts)), 10.0 ** -(kind.scale + 2)).fill_null(False)
        exact = pc.if_else(pc.and_(tiny, exact.is_null()), pa.scalar(Decimal(0), _WIDE), exact)
    # below the largest there is plus half a digit, which rounds down to it
    tenths, scale = (10, kind.scale + 1) if kind.scale < _WIDE.scale else (1, kind.scale)
    limit = Decimal(f"{10**kind.precision * tenths - tenths // 2}e-{scale}")
    nothing = pa.scalar(None, _WIDE)
    exact = pc.if_else(pc.less(pc.abs(exact), pa.scalar(limit, _WIDE)), exact, nothing)
    rounded = pc.round(exact, kind.scale, "half_towards_infinity")
    if not rounds:
        rounded = pc.if_else(pc.equal(rounded, exact), rounded, nothing)
    return rounded.cast(arrow_type(kind))


def _each(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Return the cast, null where it fails: by halves, so that one bad value costs a few casts more."""
    try:
        return values.cast(target)
    except pa.ArrowInvalid:
        if len(values) == 1:
            return pa.nulls(1, target)
        middle = len(values) // 2
        return pa.concat_arrays([_each(values[:middle], target), _each(values[middle:], target)])


def _instants(texts: pa.StringArray, zone: str, rounds: bool) -> tuple[Longs, NDArray[np.bool_]]:
    """Return microseconds since the epoch as written (or as `zone` shows them), and where the text is an
    instant."""
    parts = pc.extract_regex(texts, _TIME)
    known = np.asarray(parts.is_valid())
    written = {field.name: pc.struct_field(parts, field.name).fill_null("") for field in parts.type}

    def number(part: pa.StringArray) -> Longs:
        filled = pc.if_else(pc.equal(part, ""), "0", part)
        return np.asarray(filled.cast(pa.int64()))

    def piece(name: str, packed: str, start: int) -> Longs:
        return number(written[name]) + number(pc.utf8_slice_codeunits(written[packed], start, start + 2))

    year = number(written["year"])
    month, day = piece("month", "compact", 0), piece("day", "compact", 2)
    hour, minute, second = (
        piece("hour", "packed", 0),
        piece("minute", "packed", 2),
        piece("second", "packed", 4),
    )
    digits = pc.utf8_rpad(written["fraction"], 18, "0")
    micro = number(pc.utf8_slice_codeunits(digits, 0, 6))
    beyond = number(pc.utf8_slice_codeunits(digits, 6, 18))
    known &= (year >= 1) & (month >= 1) & (month <= 12) & (hour < 24) & (minute < 60) & (second < 60)
    known &= (day >= 1) & (day <= _days_in_month(year, month))
    if rounds:
        micro = micro + (beyond >= 500_000_000_000)
    else:
        known &= beyond == 0
    year, month, day = (np.where(known, part, 1) for part in (year, month, day))
    # numpy's calendar; the product may leave it only where the text is no instant
    months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    days = months.astype("datetime64[D]").astype(np.int64) + day - 1
    micros = days * _DAY_MICROS + ((hour * 60 + minute) * 60 + second) * 1_000_000 + micro
    shown = _shown_in(micros, written["zone"], zone, known)
    # a zone or rounding may have taken it out of the calendar
    return shown, known & (shown >= FIRST_MICRO) & (shown <= LAST_MICRO)


def _shown_in(micros: Longs, offsets: pa.StringArray, zone: str, known: NDArray[np.bool_]) -> Longs:
    with_offset = np.asarray(pc.not_equal(offsets, "")) & known
    if not with_offset.any():
        return np.where(known, micros, 0)
    figures = pc.if_else(pc.or_(pc.equal(offsets, "Z"), pc.equal(offsets, "")), "+0000", offsets)
    figures = pc.replace_substring(figures, ":", "")
    ahead = np.asarray(pc.utf8_slice_codeunits(figures, 1, 3).cast(pa.int64())) * 60
    ahead += np.asarray(pc.utf8_slice_codeunits(figures, 3, 5).cast(pa.int64()))
    ahead *= np.where(np.asarray(pc.starts_with(figures, "-")), -1, 1)
    instants = pa.array(np.where(known, micros - ahead * 60_000_000, 0)).cast(pa.timestamp("us", zone))
    local = np.asarray(pc.local_timestamp(instants).view(pa.int64()))
    return np.where(with_offset, local, np.where(known, micros, 0))


def _days_in_month(year: Longs, month: Longs) -> Longs:
    lengths = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    inside = np.where((month >= 1) & (month <= 12), month, 0)
    return np.asarray(lengths[inside] + (leap & (month == 2)))
