"""Codes of several columns as digits of one number of mixed radix, and the digits of such numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rtolap.columnar.group_ids import Ids

RADIX_MAX = 1 << 62  # of a combined number, so that 64 bits hold it with its sign

Codes = NDArray[np.integer[Any]]


class Numbered(NamedTuple):
    """One number a row.

    Attributes:
        numbers: rows with equal codes have equal numbers; all are below `radix`.
        radix: how many numbers there may be.
    """

    numbers: Ids
    radix: int


def combine(
    digits: Iterable[tuple[Codes, int]], rows: int, make_dense: Callable[[Ids], Numbered] | None = None
) -> Numbered:
    """Return one number for each row; the first digit is the most significant.

    Args:
        digits: codes and their radix, a column each. The codes are not changed.
        rows: how many codes each column has.
        make_dense: renumbers the numbers so far, before the radix would leave RADIX_MAX; None: it `fits`.
    """
    numbers: Codes | None = None
    radix, is_own = 1, False
    for codes, size in digits:
        if numbers is None:
            numbers, radix = codes, size
            continue
        if radix > RADIX_MAX // size:
            assert make_dense is not None, "radixes that do not fit"
            (numbers, radix), is_own = make_dense(numbers.astype(np.int64, copy=False)), True
        numbers = np.multiply(numbers, size, out=numbers if is_own else None, dtype=np.int64)
        numbers += codes
        radix, is_own = radix * size, True
    if numbers is None:
        return Numbered(np.zeros(rows, np.int64), 1)
    return Numbered(numbers.astype(np.int64, copy=False), radix)


def fits(radixes: Iterable[int]) -> bool:
    """Tell whether numbers with these radixes need not be made dense."""
    return prod(radixes) <= RADIX_MAX


def take_apart(numbers: Ids, radixes: Sequence[int]) -> list[Ids]:
    """Return the codes of each column out of numbers that were not made dense."""
    codes = []
    for radix in reversed(radixes):
        codes.append(numbers % radix)
        numbers = numbers // radix
    return codes[::-1]
