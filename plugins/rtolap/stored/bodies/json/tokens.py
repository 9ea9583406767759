"""Which texts are JSON numbers as they are usually written, over whole columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.stored.bodies.batches import Longs, Mask

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
        has_fractions: whether any may be a fraction.
    """

    plain: Mask
    padded: Mask
    tiny: Mask
    has_fractions: bool


def numbers_in(values: pa.StringArray) -> Numbers:
    """Judge a column without nulls."""
    count = len(values)
    none = np.zeros(count, bool)
    offsets = np.frombuffer(values.buffers()[1], np.int32, count + 1, values.offset * 4).astype(np.int64)
    starts, ends = offsets[:-1] - offsets[0], offsets[1:] - offsets[0]
    data = values.buffers()[2]
    if data is None or offsets[0] == offsets[-1]:
        return Numbers(none, none, none, has_fractions=False)
    text = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    first = text.take(starts, mode="clip")
    if not (first <= _NINE).any():
        return Numbers(none, none, none, has_fractions=False)  # all of them are literals, or text
    last = len(text) - 1
    lengths = ends - starts
    negative = first == _MINUS
    digits, leading = starts, first
    if negative.any():
        digits = starts + negative
        leading = text.take(digits, mode="clip")
    is_single = lengths - negative == 1
    final = text.take(ends - 1, mode="clip")
    plain = (lengths > negative) & _is_digit(leading) & _is_digit(final)
    zeros = leading == _ZERO
    if zeros.any():
        plain &= ~zeros | is_single | (text.take(digits + 1, mode="clip") == _POINT)
        plain &= ~(negative & is_single & zeros)
    is_other = ~_is_digit(text)
    if not is_other.any():
        return Numbers(plain, none, none, has_fractions=False)
    is_fraction = _fractions(text, is_other, starts, ends, negative, plain)
    short = is_fraction & (lengths < LONG_RUN) & plain
    padded = short & (final == _ZERO)
    if padded.any():
        padded &= text.take(np.maximum(ends - 2, 0)) != _POINT
    tiny = short & zeros
    for place in range(2, 2 + _ZEROS_MAX):
        if not tiny.any():
            break
        tiny &= text.take(np.minimum(digits + place, last)) == _ZERO
    return Numbers(plain, padded, tiny, has_fractions=True)


def _fractions(text: Bytes, is_other: Mask, starts: Longs, ends: Longs, negative: Mask, plain: Mask) -> Mask:
    """Return which texts have a point; those with any other character that is no digit are no longer plain.

    `is_other`: the places of all characters that are no digits.
    """
    so_far = np.zeros(len(text) + 1, np.int32)
    np.cumsum(is_other, dtype=np.int32, out=so_far[1:])
    others = so_far[ends] - so_far[starts] - negative
    is_fraction = np.asarray(others == 1)
    plain &= others <= 1
    points = int(np.count_nonzero(text == _POINT))
    signs = int(np.count_nonzero(text == _MINUS))
    # with one such character a text at most, there are as many points as texts only if all of them are points
    if others.max() <= 1 and points == int(is_fraction.sum()) and signs == int(negative.sum()):
        return is_fraction
    places = np.flatnonzero(is_other)
    at = np.searchsorted(ends, places, "right")
    is_sign = negative[at] & (places == starts[at])
    plain[at[~is_sign & (text[places] != _POINT)]] = False
    return np.asarray(is_fraction & plain)


def without_padding(values: pa.StringArray, padded: Mask) -> pa.StringArray:
    """Return the column with the fractions at `padded` as short as they can be, one digit at least."""
    some = pa.array(padded)
    trimmed = pc.replace_substring_regex(values.filter(some), r"(\.\d*[1-9]|\.0)0+$", r"\1")
    return pc.replace_with_mask(values, some, trimmed)


def _is_digit(text: Bytes) -> Mask:
    return np.asarray((text - _ZERO) <= _NINE - _ZERO)
