"""Between floats, decimals and integers of a file, where Arrow's casts are not exact.

A float stands for the shortest decimal that reads back as it, which is its text. Arrow rounds it to the
column's scale, or expands it to all its binary digits, and says nothing; and it multiplies a decimal by an
inexact power of ten. Here a whole number is divided by an exact power: that rounds once, as reading does.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_EXACT_INTEGERS = 1 << 53  # up to here every integer is a float
_EXACT_POWERS = 22  # up to here every power of ten is one
_DISTINCT = 10**15  # so many digits always come back from a float
Longs = NDArray[np.int64]


def decimals_of(floats: pa.Array, target: pa.Decimal128Type, *, rounds: bool) -> pa.Array | None:
    """As their texts are, or rounded half away from zero; None where one needs a closer look."""
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


def doubles_of(decimals: pa.Array) -> pa.Array | None:
    """As their texts are; None where one needs a closer look."""
    unscaled = _unscaled(decimals, _EXACT_INTEGERS)
    if unscaled is None:
        return None
    mask = np.asarray(decimals.is_null()) if decimals.null_count else None
    return pa.array(_divided(unscaled, decimals.type.scale), mask=mask)


def integers_of(floats: pa.Array, target: pa.DataType) -> pa.Array:
    """Null for fractions and what is out of range."""
    numbers = floats.cast(pa.float64())
    limit = float(1 << (target.bit_width - 1))
    fits = pc.and_(pc.greater_equal(numbers, -limit), pc.less(numbers, limit))
    fits = pc.and_(fits, pc.equal(pc.trunc(numbers), numbers))
    return pc.if_else(fits, numbers, pa.scalar(None, pa.float64())).cast(target)


def _unscaled(decimals: pa.Array, most: int) -> Longs | None:
    """The integers of which scale makes the decimals, 0 for nulls; None when one is larger, or scale is."""
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
