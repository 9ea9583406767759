"""Bounds of sums: proof beforehand that no sum of some numbers can leave its type.

Arithmetic that does not notice an overflow of its type (64-bit arithmetic, Arrow's kernels) is checked here
first. A bound may refuse sums that would fit; it never lets one pass that would not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rtolap.column_types import ColumnType

INT64_MAX = (1 << 63) - 1
DECIMAL_MAX = 10**38 - 1  # unscaled
_WORD_BITS = 64


def sum_fits(largest: int, count: int, limit: int = INT64_MAX) -> bool:
    """Return True if no sum of `count` numbers can exceed the limit. `largest`: of their absolute values."""
    return largest * count <= limit


@dataclass
class SumBound:
    """The largest absolute value that a sum of all numbers so far, or of any of them, may have.

    Attributes:
        limit: what the type of the sum holds.
        bound: of the numbers so far.
    """

    limit: int
    bound: int = 0

    def add_numbers(self, largest: int, count: int) -> bool:
        """Add numbers whose absolute values are at most `largest`. Return False if a sum might not fit."""
        self.bound += largest * count
        return sum_fits(self.bound, 1, self.limit)


def sum_limit(kind: ColumnType) -> int | None:
    """Return the largest sum that a column of this type holds, unscaled; None for what is not exact."""
    match kind.kind:
        case "bigint":
            return INT64_MAX
        case "decimal":
            return DECIMAL_MAX
    return None


def largest_of(numbers: NDArray[np.signedinteger[Any]]) -> int:
    """Return the largest absolute value; 0 if there are no numbers."""
    return max(int(numbers.max(initial=0)), -int(numbers.min(initial=0)))


def largest_of_column(column: pa.Array) -> int:
    """Return a bound of the absolute values, unscaled, of an int64 or decimal128 array."""
    words = whole_words(column)
    largest = largest_of(words[:, -1])
    return largest + 1 << _WORD_BITS if words.shape[1] > 1 else largest


def whole_words(column: pa.Array) -> NDArray[np.int64]:
    """Return the memory of an int64 or decimal128 array: a row of 64-bit words each, the lowest first.

    The words of nulls are arbitrary.
    """
    width = column.type.bit_width // _WORD_BITS
    if not len(column):
        return np.zeros((0, width), np.int64)
    words: NDArray[np.int64] = np.frombuffer(column.buffers()[1], np.int64).reshape(-1, width)
    return words[column.offset : column.offset + len(column)]
