"""`hll_hash(x)`, `to_bitmap(x)`, `bitmap_hash(x)` and the empty ones of the header `columns`, by the column.

A null is a sketch of nothing, as are values that HLL does not count and numbers that no bitmap has.
`bitmap_hash` hashes what Doris' does, the text of the value, so that bitmaps of both have the same members.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rtolap.columnar.hll import coupons, string_parts
from rtolap.columnar.hll_image import image_of_distinct
from rtolap.columnar.murmur3 import hash_strings_32
from rtolap.columnar.sketches import bitmaps_of
from rtolap.model.types import BIGINT, STRING
from rtolap.stored.bodies.casting import convert

LG_K = 12


def sketches(function: str, values: pa.Array) -> pa.BinaryArray:
    if function == "hll_hash":
        return _hlls(values)
    if function == "to_bitmap":
        numbers = convert(values, BIGINT, zone="UTC", rounds=True).values
        members = pc.if_else(pc.greater_equal(numbers, 0), numbers, pa.scalar(None, pa.int64()))
        return bitmaps_of(members)
    if function == "bitmap_hash":
        texts = convert(values, STRING, zone="UTC", rounds=True).values
        starts, lengths, data = string_parts(texts)
        value_hashes = hash_strings_32(data, starts, lengths).astype(np.int64)
        return bitmaps_of(pa.array(value_hashes, mask=np.asarray(texts.is_null())))
    return pa.nulls(len(values), pa.binary())


def _hlls(values: pa.Array) -> pa.BinaryArray:
    """Images of one coupon differ in its four bytes, which are the last."""
    value_coupons = coupons(values)
    pattern = np.frombuffer(image_of_distinct(np.zeros(1, np.uint32), LG_K), np.uint8)
    images = np.tile(pattern, (len(value_coupons), 1))
    own = value_coupons.fill_null(0).to_numpy(zero_copy_only=False)
    images[:, -4:] = own.astype("<u4").view(np.uint8).reshape(-1, 4)
    offsets = np.arange(len(value_coupons) + 1, dtype=np.int32) * len(pattern)
    whole = pa.BinaryArray.from_buffers(
        pa.binary(), len(value_coupons), [None, pa.py_buffer(offsets), pa.py_buffer(images.tobytes())]
    )
    return pc.if_else(value_coupons.is_valid(), whole, pa.scalar(None, pa.binary()))
