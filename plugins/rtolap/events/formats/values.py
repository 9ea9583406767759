"""Values of a format brought into the type as which a column is read. What does not fit is flagged, never
changed: the rules are those for JSON, where a number may be written as a text. A boolean may be, too."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.columnar.given.sketches import bytes_of_base64
from rtolap.columnar.schema import arrow_type
from rtolap.events.classify import Leaf, Problem, Reason, number_in
from rtolap.events.decimals import fitting
from rtolap.events.event_time import FIRST_US, LAST_US, lenient

Flags = NDArray[np.bool_]

_US = pa.timestamp("us")
_FOUND_CHARS_MAX = 80
_TRUE, _FALSE = ("true", "1"), ("false", "0")
_EXACT_DOUBLE = 10**15  # beyond, a double stands for several whole numbers that a person may have meant


def read_type(leaf: Leaf) -> pa.DataType:
    """Return the type that `fitted` gives the column."""
    return arrow_type(leaf.type if leaf.moment is None else leaf.moment)


def fitted(values: pa.Array, leaf: Leaf) -> tuple[pa.Array, Flags]:
    """Return the column, and where a value does not fit it; there it is null."""
    wanted = read_type(leaf)
    column = _converted(values, leaf, wanted)
    if column.null_count == values.null_count:
        return column, np.zeros(len(values), bool)
    return column, pc.and_(column.is_null(), values.is_valid()).to_numpy(zero_copy_only=False)


def misfit(leaf: Leaf, values: pa.Array, row: int) -> Problem:
    """Return the problem of a value that does not fit."""
    value = values[row]
    if pa.types.is_timestamp(value.type):  # it may be beyond what Python has
        found: object = f"{value.value} {value.type}"
    else:
        found = value.as_py()
    shown = repr(found[:_FOUND_CHARS_MAX]) if isinstance(found, str) else str(found)[:_FOUND_CHARS_MAX]
    expected = leaf.rounded or leaf.moment or leaf.type
    reason: Reason = "invalid_time" if leaf.is_time else "wrong_type"
    return Problem(reason, f"column {leaf.name}: expected {expected}, found {shown}")


def _converted(values: pa.Array, leaf: Leaf, wanted: pa.DataType) -> pa.Array:
    kind = values.type
    if pa.types.is_null(kind):
        return values.cast(wanted)
    if leaf.moment is not None:
        return _moment(values, leaf, wanted)
    if pa.types.is_temporal(kind):
        return _number_of_time(values, leaf, wanted)
    if pa.types.is_boolean(wanted) and pa.types.is_string(kind):
        return _flags(values)
    if pa.types.is_string(wanted) or pa.types.is_boolean(wanted):
        return values if kind == wanted else pa.nulls(len(values), wanted)
    if pa.types.is_string(kind):
        return _number_of_text(values, leaf, wanted)
    if pa.types.is_boolean(kind) or pa.types.is_binary(kind):
        return pa.nulls(len(values), wanted)
    if pa.types.is_floating(kind) and not pa.types.is_floating(wanted):
        if pa.types.is_decimal(wanted):  # in the fewest digits that stand for it alone: 0.1 is meant as 0.1
            finite = pc.if_else(pc.is_finite(values), values, pa.scalar(None, kind))
            return _number_of_text(finite.cast(pa.string()), leaf, wanted)
        return _whole(values, wanted)
    if pa.types.is_decimal(kind) and pa.types.is_decimal(wanted):
        return _rescaled(values, wanted, cuts=leaf.rounded is not None)
    if pa.types.is_decimal(kind) and pa.types.is_integer(wanted):
        return fitting(_rescaled(values, pa.decimal128(38, 0), cuts=False), wanted)
    if kind == pa.uint64() and not pa.types.is_floating(wanted):
        values = values.cast(pa.decimal128(20, 0))
    return fitting(values, wanted)


def _moment(values: pa.Array, leaf: Leaf, wanted: pa.DataType) -> pa.Array:
    kind, nothing = values.type, pa.nulls(len(values), wanted)
    if pa.types.is_binary(wanted):
        if pa.types.is_binary(kind):
            return values
        return bytes_of_base64(values) if pa.types.is_string(kind) else nothing
    if pa.types.is_string(kind):
        assert leaf.times is not None, "a moment is written somehow"
        if pa.types.is_date(wanted) and leaf.times.is_iso:
            return lenient(lambda part: part.cast(wanted), values)
        found = leaf.times.parse(values)
        instants = pa.array(found.micros, mask=found.missing | found.invalid).cast(_US)
    elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        instants = _in_range(_micros(values))
    else:
        return nothing
    return instants if wanted == _US else pc.floor_temporal(instants, unit="day").cast(wanted)


def _number_of_time(values: pa.Array, leaf: Leaf, wanted: pa.DataType) -> pa.Array:
    """Return points in time as the numbers or texts in which the column holds them. A column that holds none
    gets the number that is written."""
    if leaf.times is None:
        if pa.types.is_string(wanted):
            return pa.nulls(len(values), wanted)
        return fitting(values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64()), wanted)
    instants = _in_range(_micros(values))
    if pa.types.is_string(wanted):
        if not leaf.times.is_iso:
            return pa.nulls(len(values), wanted)
        return pc.binary_join_element_wise(instants.cast(pa.string()), "Z", "")
    unit_us = leaf.times.unit_us
    assert unit_us is not None, "a number is read of times that are numbers"
    micros = instants.cast(pa.int64())
    numbers = pa.array(micros.fill_null(0).to_numpy() // unit_us, mask=micros.is_null().to_numpy(False))
    return fitting(numbers, wanted)


def _micros(values: pa.Array) -> pa.Array:
    """Return instants in microseconds as int64, null where they are beyond its range."""
    if pa.types.is_date(values.type):
        return pc.multiply(values.cast(pa.int32()).cast(pa.int64()), 86_400_000_000)
    unit, numbers = values.type.unit, values.cast(pa.int64())
    if unit == "us":
        return numbers
    if unit == "ns":
        raw = numbers.fill_null(0).to_numpy() // 1000
        return pa.array(raw, mask=numbers.is_null().to_numpy(zero_copy_only=False))
    factor = {"ms": 1000, "s": 1_000_000}[unit]
    bound = LAST_US // factor + 1
    inside = pc.less_equal(pc.abs(numbers), bound)
    return pc.multiply(pc.if_else(inside, numbers, pa.scalar(None, pa.int64())), factor)


def _in_range(micros: pa.Array) -> pa.Array:
    inside = pc.and_(pc.greater_equal(micros, FIRST_US), pc.less_equal(micros, LAST_US))
    return pc.if_else(inside, micros, pa.scalar(None, pa.int64())).cast(_US)


def _flags(values: pa.Array) -> pa.Array:
    lower = pc.utf8_lower(pc.utf8_trim_whitespace(values))
    true = pc.is_in(lower, pa.array(_TRUE))
    known = pc.or_(true, pc.is_in(lower, pa.array(_FALSE)))
    return pc.if_else(known, true, pa.scalar(None, pa.bool_()))


def _number_of_text(values: pa.Array, leaf: Leaf, wanted: pa.DataType) -> pa.Array:
    column = lenient(lambda part: part.cast(wanted), values)
    if pa.types.is_integer(wanted):  # 0x10 is a number to the cast
        hexadecimal = pc.match_substring(values, "x", ignore_case=True)
        if pc.any(hexadecimal, min_count=0).as_py():
            column = pc.if_else(hexadecimal, pa.scalar(None, wanted), column)
    elif pa.types.is_floating(wanted):
        column = pc.if_else(pc.is_finite(column), column, pa.scalar(None, wanted))
    if column.null_count == values.null_count:
        return column
    lost = pc.and_(column.is_null(), values.is_valid())
    rows = np.flatnonzero(lost.to_numpy(zero_copy_only=False))
    texts = values.take(pa.array(rows))
    found = pa.array([number_in(leaf, text) for text in texts.to_pylist()], wanted)
    return pc.replace_with_mask(column, lost, found)


def _whole(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return doubles that are whole numbers, null where they are none or may stand for several."""
    values = values.cast(pa.float64())
    small = pc.and_(pc.less(pc.abs(values), float(_EXACT_DOUBLE)), pc.equal(values, pc.trunc(values)))
    return fitting(pc.if_else(small, values, pa.scalar(None, pa.float64())).cast(pa.int64()), wanted)


def _rescaled(values: pa.Array, wanted: pa.DataType, *, cuts: bool) -> pa.Array:
    """Return decimals in the digits of `wanted`, null where they have more. `cuts`: those behind the point
    are cut off."""
    wide = values.cast(pa.decimal256(76, values.type.scale))
    if wanted.scale < values.type.scale:
        cut = pc.round(wide, ndigits=wanted.scale, round_mode="towards_zero")
        if not cuts:
            cut = pc.if_else(pc.equal(cut, wide), cut, pa.scalar(None, wide.type))
        wide = cut.cast(pa.decimal256(76, wanted.scale))
    return fitting(wide, wanted)
