"""MurmurHash3 over whole columns: x64 128 as Apache DataSketches uses it, x86 32 as Apache Doris does.

A value is hashed as DataSketches' `update` hashes it in Java and C++ (seed 9001), so that sketches built here
and there agree: integers, dates (days), timestamps (µs) and booleans as 8-byte little-endian longs, doubles
as the bits of the canonical double (one zero, one NaN), strings as their UTF-8 bytes.

`bitmap_hash` of Doris keeps the 32 bits of a value's text: bitmaps made here and there have the same members.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SEED = np.uint64(9001)

U64 = NDArray[np.uint64]
_C1 = np.uint64(0x87C37B91114253D5)
_C2 = np.uint64(0x4CF5AD432745937F)
_FMIX1 = np.uint64(0xFF51AFD7ED558CCD)
_FMIX2 = np.uint64(0xC4CEB9FE1A85EC53)
_STRINGS_PER_BLOCK = 1 << 16  # bounds the padded matrix that one step works on

DORIS_SEED = 104_729

U32 = NDArray[np.uint32]
_C1_32, _C2_32 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)


def hash_longs(values: NDArray[np.int64]) -> tuple[U64, U64]:
    """Return (h1, h2) of each 8-byte value."""
    h1 = np.full(len(values), SEED)
    h2 = h1.copy()
    h1 ^= _mix_k1(values.view(np.uint64).copy())
    return _finish(h1, h2, np.full(len(values), 8, np.uint64))


def hash_strings(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[U64, U64]:
    """Return (h1, h2) of each byte string `data[start : start + length]`."""
    h1 = np.empty(len(starts), np.uint64)
    h2 = np.empty(len(starts), np.uint64)
    order = np.argsort(lengths, kind="stable")  # neighbours of like length waste little padding
    for first in range(0, len(order), _STRINGS_PER_BLOCK):
        rows = order[first : first + _STRINGS_PER_BLOCK]
        h1[rows], h2[rows] = _hash_block(data, starts[rows], lengths[rows])
    return h1, h2


def _hash_block(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[U64, U64]:
    h1 = np.full(len(starts), SEED)
    h2 = h1.copy()
    longest = int(lengths.max(initial=0))
    for at in range(0, longest, 16):
        live = np.flatnonzero(lengths > at)
        words = _words(data, starts[live] + at, np.minimum(lengths[live] - at, 16))
        full = lengths[live] - at >= 16
        a, b = h1[live], h2[live]
        k1, k2 = _mix_k1(words[:, 0].copy()), _mix_k2(words[:, 1].copy())
        # A whole block is mixed into the state; a tail is only xor-ed (a missing k2 is zero and stays so).
        a_tail, b_tail = a ^ k1, b ^ k2
        a_full = (_rotate(a_tail, 27) + b) * np.uint64(5) + np.uint64(0x52DCE729)
        b_full = (_rotate(b_tail, 31) + a_full) * np.uint64(5) + np.uint64(0x38495AB5)
        h1[live] = np.where(full, a_full, a_tail)
        h2[live] = np.where(full, b_full, b_tail)
    return _finish(h1, h2, lengths.astype(np.uint64))


def _words(data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> U64:
    """Return up to 16 bytes from each start, zero-padded, as two little-endian words."""
    columns = np.arange(16)
    inside = columns < lengths[:, None]
    places = np.minimum(starts[:, None] + columns, max(len(data) - 1, 0))
    matrix = np.where(inside, data[places], np.uint8(0))
    return np.ascontiguousarray(matrix).view("<u8")


def _mix_k1(k1: U64) -> U64:
    k1 *= _C1
    k1 = _rotate(k1, 31)
    k1 *= _C2
    return k1


def _mix_k2(k2: U64) -> U64:
    k2 *= _C2
    k2 = _rotate(k2, 33)
    k2 *= _C1
    return k2


def _finish(h1: U64, h2: U64, lengths: U64) -> tuple[U64, U64]:
    h1, h2 = h1 ^ lengths, h2 ^ lengths
    h1 += h2
    h2 += h1
    h1, h2 = _fmix(h1), _fmix(h2)
    h1 += h2
    h2 += h1
    return h1, h2


def _fmix(h: U64) -> U64:
    h = h ^ (h >> np.uint64(33))
    h *= _FMIX1
    h ^= h >> np.uint64(33)
    h *= _FMIX2
    h ^= h >> np.uint64(33)
    return h


def _rotate(x: U64, bits: int) -> U64:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


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
        hashes[rows] = _hash_block_32(data, starts[rows], lengths[rows], seed)
    return hashes


def _hash_block_32(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], seed: int
) -> U32:
    hashes = np.full(len(starts), seed, np.uint32)
    for at in range(0, int(lengths.max(initial=0)), 4):
        live = np.flatnonzero(lengths > at)
        left = lengths[live] - at
        mixed = _mix_32(_words_32(data, starts[live] + at, left)) ^ hashes[live]
        # a whole word is mixed into the state, a tail is only xor-ed
        hashes[live] = np.where(
            left >= 4, _rotate_32(mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64), mixed
        )
    return _finish_32(hashes ^ lengths.astype(np.uint32))


def _words_32(data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> U32:
    """Return up to four bytes from each start, little-endian, zero-padded."""
    columns = np.arange(4)
    places = np.minimum(starts[:, None] + columns, len(data) - 1)
    padded = np.where(columns < lengths[:, None], data[places], np.uint8(0))
    return np.ascontiguousarray(padded).view("<u4")[:, 0].astype(np.uint32)


def _mix_32(words: U32) -> U32:
    return _rotate_32(words * _C1_32, 15) * _C2_32


def _finish_32(hashes: U32) -> U32:
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))


def _rotate_32(words: U32, bits: int) -> U32:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
