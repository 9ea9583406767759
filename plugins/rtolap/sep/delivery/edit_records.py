"""Delivered edits of regions as they are stored: sets of sequence ids as 64-bit roaring bitmaps.

The bitmaps are in the portable format of the Roaring specification; a run of neighbouring ids takes a few
bytes however long it is.
"""

from __future__ import annotations

from array import array

import msgspec
import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

I64 = NDArray[np.int64]


class RegionEdits(msgspec.Struct, frozen=True, array_like=True):
    """Delivered edits of one region, as the journal stores them.

    Attributes:
        sequence_ids: the ids of edits that are delivered whole, as a serialized bitmap.
        newest_write_ms: the newest write time among the edits.
        partial: the edits of which other rows are still due, with the rows that are delivered.
        forgets: True if earlier records of the region no longer count, because its ids were used again.
        highest: at least the largest id; -1 where `sequence_ids` and `partial` contain the largest.
        first_row: the smallest delivered row, cut as `row_ranges` cuts it.
        last_row: the largest delivered row, cut in the same way.
    """

    region: str
    sequence_ids: bytes
    newest_write_ms: int
    partial: tuple[tuple[int, tuple[bytes, ...]], ...] = ()
    forgets: bool = False
    highest: int = -1
    table: str = ""
    first_row: bytes = b""
    last_row: bytes = b""


def bitmap_of(sequence_ids: I64) -> BitMap64:
    return BitMap64(array("Q", sequence_ids.astype(np.uint64).tobytes()))


def ids_of(bitmap: BitMap64) -> I64:
    """Return the ids in ascending order."""
    return np.frombuffer(bitmap.to_array(), np.uint64).astype(np.int64)


def packed(bitmap: BitMap64) -> bytes:
    bitmap.run_optimize()
    return bytes(bitmap.serialize())


def unpacked(data: bytes) -> BitMap64:
    return BitMap64.deserialize(data)
