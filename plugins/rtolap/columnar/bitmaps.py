"""Bitmaps of row numbers out of numpy arrays."""

from __future__ import annotations

from array import array

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

WORD = "I"  # of `array`: 32 bits, without a sign


def words(rows: NDArray[np.uint32]) -> array[int]:
    """Return the numbers as pyroaring takes them fastest: of an array of numpy it makes a Python number each,
    which costs twice as much and holds the interpreter meanwhile."""
    return array(WORD, rows.tobytes())


def bitmap_of(rows: NDArray[np.unsignedinteger] | NDArray[np.signedinteger]) -> BitMap:
    """Return the bitmap of row numbers, none of which is negative or needs more than 32 bits."""
    return BitMap(words(rows.astype(np.uint32)))
