"""Squares of whole numbers of 64 bits, which have up to 127: in two parts, as whole columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rtolap.aggregates.accumulator import SquarePart
from rtolap.columnar.reduce import decimals_of_words
from rtolap.columnar.sum_bounds import whole_words

_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_HIGH = pa.decimal128(38, 0)


def square_parts(column: pa.Array, part: SquarePart) -> pa.Array:
    """Return the lowest 32 bits of each square, as int64, or the bits above them, as decimal(38, 0).

    Args:
        column: whole numbers, or decimals of at most 18 digits, whose unscaled values are squared. A null
            gives null.
    """
    numbers = column if pa.types.is_decimal(column.type) else column.cast(pa.int64())
    words = whole_words(numbers)[:, 0]
    absent = ~np.asarray(column.is_valid()) if column.null_count else None
    magnitudes = np.abs(words).view(np.uint64)  # of -2^63 the absolute value wraps to the bits of 2^63
    high, low = magnitudes >> _SHIFT, magnitudes & _LOW
    low_square = low * low
    if part == "low":
        return pa.array((low_square & _LOW).view(np.int64), mask=absent)
    # x = high·2^32 + low, so x² / 2^32 = high²·2^32 + 2·high·low + low² / 2^32
    middle = (high * low << np.uint64(1)) + (low_square >> _SHIFT)
    top = high * high  # at most 2^62
    lower = middle + (top << _SHIFT)
    upper = (top >> _SHIFT) + (lower < middle)
    return decimals_of_words(lower, upper, _HIGH, absent)
