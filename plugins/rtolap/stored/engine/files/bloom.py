"""A bloom filter over key hashes, by blocks of 64 bits: one word a key, read and written in one step.

16 bits a key and 5 bits set: about one key in a hundred passes that is not there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rtolap.stored.engine.rows.keys import Hashes

BITS_PER_KEY = 16
_BITS_SET = 5
_HASHES_AT_ONCE = 8192  # what is made of them fits the processor's cache
Words = NDArray[np.uint64]


def build(hashes: Hashes) -> Words:
    """Build a filter of at least one word."""
    words = np.zeros(max(1, len(hashes) * BITS_PER_KEY // 64), np.uint64)
    for start in range(0, len(hashes), _HASHES_AT_ONCE):
        some = hashes[start : start + _HASHES_AT_ONCE]
        np.bitwise_or.at(words, _places(some, len(words)), _masks(some))
    return words


def may_contain(words: Words, hashes: Hashes) -> NDArray[np.bool_]:
    masks = _masks(hashes)
    return np.asarray((words[_places(hashes, len(words))] & masks) == masks)


def _places(hashes: Hashes, words: int) -> NDArray[np.int64]:
    """Choose a word by the upper half, spread by a product over any number of words below 2^32."""
    return ((hashes >> np.uint64(32)) * np.uint64(words) >> np.uint64(32)).astype(np.int64)


def _masks(hashes: Hashes) -> Words:
    """Choose bits by 30 bits of the lower half."""
    masks = np.zeros(len(hashes), np.uint64)
    for at in range(_BITS_SET):
        masks |= np.uint64(1) << (hashes >> np.uint64(6 * at) & np.uint64(63))
    return masks
