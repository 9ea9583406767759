"""Sketches in columns: HLL images (DataSketches HLL_8) and 64-bit roaring bitmaps (portable serialization).

Both are checked when they are loaded, so that nothing that is visible fails to merge later; null is empty. A
bitmap of one value, what a loaded row usually has, is 30 bytes at fixed places and is read and written by
the column; larger ones are sets, each an operation by itself.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap64

from rtolap.base.errors import Corrupted, DefinitionError
from rtolap.columnar.group_ids import Ids
from rtolap.columnar.hll_groups import merge_groups
from rtolap.columnar.hll_image import sorted_distinct

_SINGLE = np.dtype(
    [
        ("maps", "<u8"),  # 1
        ("high", "<u4"),  # the value's upper 32 bits
        ("cookie", "<u4"),  # 12346: no run containers
        ("containers", "<u4"),  # 1
        ("key", "<u2"),  # the next 16 bits
        ("count_less_one", "<u2"),  # 0
        ("offset", "<u4"),  # 16: where in the 32-bit map the container begins
        ("low", "<u2"),  # the last 16 bits
    ]
)
_COOKIE = 12346
_OFFSET = 16


def checked_hlls(images: pa.Array) -> pa.Array:
    """Return equal bytes for equal unions. DefinitionError for bytes that are no HLL sketch."""
    try:
        return merge_groups(images, np.arange(len(images)), len(images))
    except Corrupted as error:
        raise DefinitionError("a value is no HLL sketch", found=str(error)) from error


def checked_bitmaps(images: pa.Array) -> pa.Array:
    """Return equal bytes for equal sets. DefinitionError for bytes that are no 64-bit roaring bitmap."""
    try:
        return merge_bitmaps(images, np.arange(len(images)), len(images), canonical=True)
    except Corrupted as error:
        raise DefinitionError("a value is no bitmap", found=str(error)) from error


def bitmaps_of(values: pa.Array) -> pa.BinaryArray:
    """Return the bitmap {value} of each 64-bit value (as unsigned); null for null."""
    numbers = values.cast(pa.int64()) if not pa.types.is_uint64(values.type) else values
    raw = numbers.fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64)
    images = _images_of_single(raw)
    return images if not values.null_count else _with_nulls(images, values)


def merge_bitmaps(images: pa.Array, groups: Ids, size: int, *, canonical: bool = False) -> pa.BinaryArray:
    """Return the union for each of `size` groups, null for a group without any. `groups` ascends.

    `canonical` also rewrites what needs no union. Raises Corrupted.
    """
    present = np.flatnonzero(images.is_valid().to_numpy(zero_copy_only=False))
    owners = groups[present]
    counts = np.bincount(owners, minlength=size)
    first = np.full(size, -1, np.int64)
    first[owners[::-1]] = present[::-1]
    singles = _singles(images)
    result = images.take(pa.array(first, mask=first < 0))
    many = counts > 1
    if canonical:
        many |= (counts == 1) & ~singles.present[np.maximum(first, 0)]
    if not many.any():
        return result
    replaced = _unions(images, present[many[owners]], owners[many[owners]], singles)
    keep = np.flatnonzero(many)
    places = np.arange(size)
    places[keep] = size + np.arange(len(keep))
    return pa.concat_arrays([result, pa.array(replaced, pa.binary())]).take(pa.array(places))


def _unions(images: pa.Array, rows: Ids, owners: Ids, singles: _Singles) -> list[bytes]:
    ends = np.flatnonzero(np.diff(owners, append=-1)) + 1
    united: list[bytes] = []
    for start, end in pairwise((0, *ends.tolist())):
        mine = rows[start:end]
        alone = singles.present[mine]
        bitmap = BitMap64(sorted_distinct(singles.values[mine[alone]]).tolist())
        for image in images.take(pa.array(mine[~alone])).to_pylist():
            bitmap |= bitmap_of_image(image)
        united.append(image_of_bitmap(bitmap))
    return united


def bitmap_of_image(image: bytes) -> BitMap64:
    """Return the bitmap of an image. Raises Corrupted."""
    try:
        return BitMap64.deserialize(image)
    except (ValueError, RuntimeError, IndexError) as error:
        raise Corrupted("not a 64-bit roaring bitmap", found=f"{len(image)} bytes, {error}") from error


def image_of_bitmap(bitmap: BitMap64) -> bytes:
    """Return the image of a bitmap. Equal sets give equal bytes: a set of one value never becomes a run."""
    if len(bitmap) > 1:
        bitmap.run_optimize()
    return bytes(bitmap.serialize())


class _Singles(NamedTuple):
    """The images that hold exactly one value, and the value of each."""

    present: NDArray[np.bool_]
    values: NDArray[np.uint64]


def _singles(images: pa.Array) -> _Singles:
    rows = len(images)
    present = np.zeros(rows, np.bool_)
    values = np.zeros(rows, np.uint64)
    _, offsets_buffer, data = images.buffers()
    if rows == 0 or data is None:
        return _Singles(present, values)
    offsets = np.frombuffer(offsets_buffer, np.int32, rows + 1, images.offset * 4).astype(np.int64)
    fitting = np.flatnonzero(np.diff(offsets) == _SINGLE.itemsize)
    raw = np.frombuffer(data, np.uint8)[offsets[fitting][:, None] + np.arange(_SINGLE.itemsize)]
    records = np.ascontiguousarray(raw).view(_SINGLE).reshape(-1)
    single = (records["maps"] == 1) & (records["cookie"] == _COOKIE) & (records["containers"] == 1)
    single &= (records["count_less_one"] == 0) & (records["offset"] == _OFFSET)
    single_values = records[single]
    high = single_values["high"].astype(np.uint64) << np.uint64(32)
    middle = single_values["key"].astype(np.uint64) << np.uint64(16)
    present[fitting[single]] = True
    values[fitting[single]] = high | middle | single_values["low"].astype(np.uint64)
    present &= images.is_valid().to_numpy(zero_copy_only=False)
    return _Singles(present, values)


def _images_of_single(values: NDArray[np.uint64]) -> pa.BinaryArray:
    records = np.zeros(len(values), _SINGLE)
    records["maps"], records["cookie"] = 1, _COOKIE
    records["containers"], records["offset"] = 1, _OFFSET
    records["high"] = values >> np.uint64(32)
    records["key"] = values >> np.uint64(16) & np.uint64(0xFFFF)
    records["low"] = values & np.uint64(0xFFFF)
    ends = np.arange(len(values) + 1, dtype=np.int32) * _SINGLE.itemsize
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(records.tobytes())]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def _with_nulls(images: pa.BinaryArray, like: pa.Array) -> pa.BinaryArray:
    rows = np.arange(len(like))
    return images.take(pa.array(rows, mask=~like.is_valid().to_numpy(zero_copy_only=False)))
