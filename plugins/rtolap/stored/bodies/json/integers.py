"""Whole numbers out of a text, eight digits at a time: a word's bytes are added up by three products."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rtolap.stored.bodies.batches import Longs
from rtolap.stored.bodies.json.tokens import Bytes

Words = NDArray[np.uint64]
WORD_BYTES = 8
_DIGITS_MAX = 2 * WORD_BYTES
_MINUS, _ZERO = b"-0"
_ZEROS, _TENS, _HIGH_BITS = (np.uint64(byte * 0x0101010101010101) for byte in (_ZERO, 0x76, 0x80))
_STEPS = tuple(
    (np.uint64(radix), np.uint64(bits), np.uint64(mask))
    for radix, bits, mask in (
        (10, 8, 0x00FF00FF00FF00FF),
        (100, 16, 0x0000FFFF0000FFFF),
        (10_000, 32, 0x00000000FFFFFFFF),
    )
)


def integers(text: Bytes, words: Words, starts: Longs, ends: Longs) -> Longs | None:
    """Return the numbers that stand between the places; None unless all are strict JSON integers.

    They have 16 digits at most. It is None for `-0`, too, whose sign no integer has. `words` are those that
    begin at each byte of the text.
    """
    first = text.take(starts, mode="clip")
    negative = first == _MINUS
    has_negative = bool(negative.any())
    if has_negative:
        starts = starts + negative
        first = text.take(starts, mode="clip")
    lengths = ends - starts
    least, most = int(lengths.min(initial=1)), int(lengths.max(initial=1))
    if least < 1 or most > _DIGITS_MAX:
        return None
    zeros = first == _ZERO
    if zeros.any() and bool((zeros & ((lengths > 1) | negative)).any()):
        return None
    tails = _tails(words, starts if most <= WORD_BYTES else np.maximum(starts, ends - WORD_BYTES), lengths)
    if not _all_digits(tails):
        return None
    values = _added(tails)
    if most > WORD_BYTES:
        heads = _tails(words, starts, np.maximum(lengths - WORD_BYTES, 0))
        if not _all_digits(heads):
            return None
        values = values + _added(heads) * np.uint64(100_000_000)
    signed = values.view(np.int64)
    return np.where(negative, -signed, signed) if has_negative else signed


def _tails(words: Words, starts: Longs, lengths: Longs) -> Words:
    """Return the first `lengths` bytes at the places, eight at most, as digits behind zeros: the last one is
    the highest byte of a word."""
    found: Words = words[np.minimum(starts, len(words) - 1)]
    found ^= _ZEROS
    found <<= np.uint64(8) * np.maximum(WORD_BYTES - lengths, 0).view(np.uint64)
    return found


def _all_digits(digits: Words) -> bool:
    beyond = digits + _TENS
    beyond |= digits  # what overflows into the next byte has its own highest bit set
    return not bool((beyond & _HIGH_BITS).any())


def _added(digits: Words) -> Words:
    for radix, bits, mask in _STEPS:
        digits = (digits * radix + (digits >> bits)) & mask
    return digits
