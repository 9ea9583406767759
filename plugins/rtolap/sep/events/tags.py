"""Tags of cells: what HBase keeps beside a value, above all its time to live.

Raw tags are a sequence of [uint16 length][uint8 type][bytes], where the length counts the type's byte too.
They arrive just where the region servers' codec is KeyValueCodecWithTags, which is HBase's default.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

TTL_TAG: Final = 8
_TTL_BYTES: Final = 8


def tag_values(tags: pa.BinaryArray, tag_type: int) -> pa.BinaryArray:
    """Return the bytes of each cell's first tag of that type; null where it has none.

    Tags that are torn end the search in their cell: a cell's value counts although its tags do not.
    """
    data, starts = _bytes_and_offsets(tags)
    place, ends = starts[:-1].copy(), starts[1:]
    first, length = np.zeros(len(tags), np.int64), np.full(len(tags), -1, np.int64)
    open_cells = np.flatnonzero(place + 3 <= ends)
    while len(open_cells):  # as often as the cell with the most tags has tags
        at = place[open_cells]
        size = (data[at].astype(np.int64) << 8) | data[at + 1]
        whole = (size >= 1) & (at + 2 + size <= ends[open_cells])
        hit = whole & (data[at + 2] == tag_type)
        first[open_cells[hit]], length[open_cells[hit]] = at[hit] + 3, size[hit] - 1
        place[open_cells] = at + 2 + size
        open_cells = open_cells[whole & ~hit]
        open_cells = open_cells[place[open_cells] + 3 <= ends[open_cells]]
    return _slices(data, first, length)


def ttl_ms(tags: pa.BinaryArray) -> pa.Int64Array:
    """Return how long after its timestamp each cell is gone, in milliseconds; null where it stays."""
    values = tag_values(tags, TTL_TAG)
    data, starts = _bytes_and_offsets(values)
    is_ttl = np.diff(starts) == _TTL_BYTES
    times = np.zeros(len(values), np.int64)
    places = starts[:-1][is_ttl, None] + np.arange(_TTL_BYTES)
    times[is_ttl] = np.ascontiguousarray(data[places]).view(">i8").ravel()
    return pa.array(times, mask=~is_ttl)


def _bytes_and_offsets(column: pa.BinaryArray) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return all bytes behind the column, and where each value begins in them (and the last one ends)."""
    _, offsets, data = column.buffers()
    starts = np.frombuffer(offsets, np.int32, len(column) + 1, 4 * column.offset).astype(np.int64)
    return np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8), starts


def _slices(data: NDArray[np.uint8], first: NDArray[np.int64], length: NDArray[np.int64]) -> pa.BinaryArray:
    """Copy `length[i]` bytes from `first[i]` on; null where the length is negative."""
    kept = np.maximum(length, 0)
    ends = np.cumsum(kept)
    total = int(ends[-1]) if len(ends) else 0
    places = np.repeat(first - (ends - kept), kept) + np.arange(total)
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    plain = pa.Array.from_buffers(
        pa.binary(), len(first), [None, pa.py_buffer(offsets), pa.py_buffer(data[places].tobytes())]
    )
    if not (length < 0).any():
        return plain
    valid = pa.py_buffer(np.packbits(length >= 0, bitorder="little").tobytes())
    return pa.Array.from_buffers(pa.binary(), len(first), [valid, *plain.buffers()[1:]])
