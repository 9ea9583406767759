"""The division of a call's events by the shares of their rows.

The share of a row is a hash of the row key alone: not of its table, since rows of two tables may be one row
of the target, and not of its region, since that changes when a region splits or merges. So everything that
depends on the order of a row's edits stays in one share.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rtolap.columnar.murmur3 import hash_strings
from rtolap.sep.events.edit_batch import EditBatch

_NO_BYTES = np.zeros(1, np.uint8)


def shares_of(rows: pa.BinaryArray, count: int) -> NDArray[np.int64]:
    """Return the number of the share of each row."""
    if count == 1 or not len(rows):
        return np.zeros(len(rows), np.int64)
    _, offset_buffer, data = rows.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[rows.offset : rows.offset + len(rows) + 1]
    starts = offsets[:-1].astype(np.int64)
    values = _NO_BYTES if data is None or not data.size else np.frombuffer(data, np.uint8)
    hashes, _ = hash_strings(values, starts, np.diff(offsets).astype(np.int64))
    return (hashes % np.uint64(count)).astype(np.int64)


def divide(batch: EditBatch, count: int) -> list[tuple[int, EditBatch]]:
    """Return the shares that have events in the batch, with their events in the order of the batch."""
    numbers = shares_of(batch.events["row"], count)
    return [(int(number), batch.filter(numbers == number)) for number in np.unique(numbers)]
