"""MurmurHash3 x86 32 over whole columns of byte strings, with the seed of Apache Doris.

`bitmap_hash` of Doris keeps this of a value's text: bitmaps made here and there have the same members.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

DORIS_SEED = 104_729

U32 = NDArray[np.uint32]
_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)
_STRINGS_PER_BLOCK = 1 << 16  # bounds what one step works on


def hash_strings_32(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    seed: int = DORIS_SEED,
) -> U32:
    """Hash each byte string `data[start : start + length]`; `data` has at least one byte."""
    hashes = np.empty(len(starts), np.uint32)
    order = np.argsort(lengths, kind="stable")  # neighbours of like length end together
    for first in range(0, len(order), _STRINGS_PER_BLOCK):
        rows = order[first : first + _STRINGS_PER_BLOCK]
        hashes[rows] = _hash_block(data, starts[rows], lengths[rows], seed)
    return hashes


def _hash_block(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], seed: int
) -> U32:
    hashes = np.full(len(starts), seed, np.uint32)
    for at in range(0, int(lengths.max(initial=0)), 4):
        live = np.flatnonzero(lengths > at)
        left = lengths[live] - at
        mixed = _mix(_words(data, starts[live] + at, left)) ^ hashes[live]
        # a whole word is mixed into the state, a tail is only xor-ed
        hashes[live] = np.where(left >= 4, _rotate(mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64), mixed)
    return _finish(hashes ^ lengths.astype(np.uint32))


def _words(data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> U32:
    """Up to four bytes from each start, little-endian, padded with zeros."""
    columns = np.arange(4)
    places = np.minimum(starts[:, None] + columns, len(data) - 1)
    padded = np.where(columns < lengths[:, None], data[places], np.uint8(0))
    return np.ascontiguousarray(padded).view("<u4")[:, 0].astype(np.uint32)


def _mix(words: U32) -> U32:
    return _rotate(words * _C1, 15) * _C2


def _finish(hashes: U32) -> U32:
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))


def _rotate(words: U32, bits: int) -> U32:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
