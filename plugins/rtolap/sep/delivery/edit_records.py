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
    """The delivered edits of one region: whole edits by `sequence_ids` (a serialized bitmap), and the rows of
    edits of which other rows are still due. `newest_write_ms` is the newest write time among them.

    `highest` is at least the largest of the ids: -1 where they tell it themselves.
    `forgets`: what was known of the region before counts no more, for its ids were used again.
    `first_row`, `last_row`: the smallest and the largest row among them, as far as `row_ranges` counts.
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
