"""Which texts are JSON numbers as they are usually written, over whole columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.stored.bodies.batches import Mask

Bytes = NDArray[np.uint8]
LONG_RUN = 16  # digits and point; a double keeps any 15 digits
_ZEROS_MAX = 6  # behind the point of a fraction that has no exponent, before its first digit
_MINUS, _POINT, _ZERO, _NINE = b"-.09"


class Numbers(NamedTuple):
    """Which texts of a column are numbers.

    Attributes:
        plain: strict JSON numbers without an exponent, except for `-0`, whose sign the engine drops.
        padded: those of them that are short fractions with zeros at the end that say nothing.
        tiny: those of them that are so small that the engine writes them with an exponent.
    """

    plain: Mask
    padded: Mask
    tiny: Mask


def numbers_in(values: pa.StringArray) -> Numbers:
    """Judge a column without nulls."""
    count = len(values)
    none = np.zeros(count, bool)
    offsets = np.frombuffer(values.buffers()[1], np.int32, count + 1, values.offset * 4)
    data = values.buffers()[2]
    if data is None or offsets[0] == offsets[-1]:
        return Numbers(none, none, none)
    text = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    starts, ends = offsets[:-1] - offsets[0], offsets[1:] - offsets[0]
    lengths = ends - starts
    last = len(text) - 1
    negative = text.take(starts, mode="clip") == _MINUS
    digits = starts + negative
    leading = text.take(digits, mode="clip")
    final = text[np.maximum(ends, 1) - 1]
    is_single = lengths - negative == 1
    plain = (lengths > negative) & _is_digit(leading) & _is_digit(final)
    zeros = leading == _ZERO
    if zeros.any():
        plain &= ~zeros | is_single | (text.take(np.minimum(digits + 1, last)) == _POINT)
    is_fraction = none
    others = np.flatnonzero(~_is_digit(text))
    if len(others):
        at = np.searchsorted(ends, others, "right")
        is_point = text[others] == _POINT
        is_sign = negative[at] & (others == starts[at])
        plain[at[~(is_point | is_sign)]] = False
        pointed = at[is_point]
        plain[pointed[1:][pointed[1:] == pointed[:-1]]] = False
        is_fraction = np.zeros(count, bool)
        is_fraction[pointed] = True
    short = is_fraction & (lengths < LONG_RUN)
    plain &= ~(negative & is_single & zeros)
    padded = plain & short & (final == _ZERO) & (text[np.maximum(ends, 2) - 2] != _POINT)
    tiny = short & zeros
    for place in range(2, 2 + _ZEROS_MAX):
        if not tiny.any():
            break
        tiny &= text.take(np.minimum(digits + place, last)) == _ZERO
    return Numbers(plain, padded, plain & tiny)


def without_padding(values: pa.StringArray, padded: Mask) -> pa.StringArray:
    """Return the column with the fractions at `padded` as short as they can be, one digit at least."""
    some = pa.array(padded)
    trimmed = pc.replace_substring_regex(values.filter(some), r"(\.\d*[1-9]|\.0)0+$", r"\1")
    return pc.replace_with_mask(values, some, trimmed)


def _is_digit(text: Bytes) -> Mask:
    return np.asarray((text - _ZERO) <= _NINE - _ZERO)
