"""Approximate distinct counts: DataSketches HLL, kept as *coupons* while in a receiver.

A coupon is what a DataSketches HLL keeps of one value: 26 bits that choose a register and 6 bits of rank.
A set of coupons is exact to merge (a set union), and any sketch size can be made of it. Null values and empty
strings are not counted: DataSketches ignores both, and so does Spark's `hll_sketch_agg`.

`estimate` is a function of the set of coupons alone. DataSketches keeps a second, order-dependent estimator
(HIP) beside the registers; images made here carry the out-of-order flag, which makes every reader use the
composite estimator, so that a number does not change because its events moved from memory to history.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.columnar.chunks import single_chunk
from rtolap.columnar.murmur3 import hash_longs, hash_strings

_KEY_MASK = np.uint64((1 << 26) - 1)
_KEY_BITS = np.uint32(26)


def coupons(column: pa.Array | pa.ChunkedArray) -> pa.UInt32Array:
    """Return one coupon a row; null where DataSketches ignores the value."""
    column = single_chunk(column)
    if pa.types.is_string(column.type) or pa.types.is_decimal(column.type):
        column = column.dictionary_encode()
    if pa.types.is_dictionary(column.type):
        return _coupons_of_values(column.dictionary).take(column.indices)
    return _coupons_of_values(column)


def _coupons_of_values(values: pa.Array) -> pa.UInt32Array:
    kind = values.type
    valid = values.is_valid()
    if pa.types.is_decimal(kind):
        values = values.cast(pa.string())
        kind = values.type
    if pa.types.is_string(kind):
        starts, lengths, data = string_parts(values)
        valid = pc.and_(valid, pa.array(lengths > 0))
        h1, h2 = hash_strings(data, starts, lengths)
    else:
        h1, h2 = hash_longs(as_longs(values))
    coupons = _coupon(h1, h2)
    return pa.array(coupons, mask=~valid.to_numpy(zero_copy_only=False))


def _coupon(h1: NDArray[np.uint64], h2: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """Return (min(leading zeros of h2, 62) + 1) << 26 | low 26 bits of h1, as in HllUtil.coupon."""
    rank = np.minimum(_leading_zeros(h2), 62).astype(np.uint32) + np.uint32(1)
    return (rank << _KEY_BITS) | (h1 & _KEY_MASK).astype(np.uint32)


def _leading_zeros(x: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Count by halves, because a double cannot hold 64 bits exactly."""
    high, low = (x >> np.uint64(32)).astype(np.float64), (x & np.uint64(0xFFFFFFFF)).astype(np.float64)
    _, bits_high = np.frexp(high)  # frexp: the exponent is the bit length of a whole number
    _, bits_low = np.frexp(low)
    return np.where(high > 0, 32 - bits_high, 64 - bits_low).astype(np.int64)


def as_longs(values: pa.Array) -> NDArray[np.int64]:
    """Return 64-bit numbers that are equal where the values are: doubles have one zero and one NaN. Nulls are
    anything.
    """
    kind = values.type
    if pa.types.is_floating(kind):
        doubles = np.array(values.fill_null(0.0).to_numpy(zero_copy_only=False), np.float64)
        doubles[doubles == 0.0] = 0.0  # one zero
        bits = doubles.view(np.int64)
        bits[np.isnan(doubles)] = 0x7FF8000000000000
        return bits
    if pa.types.is_boolean(kind):
        return np.asarray(values.fill_null(False).to_numpy(zero_copy_only=False), np.int64)
    if pa.types.is_date32(kind):
        values = values.cast(pa.int32())
    return np.asarray(values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), np.int64)


def string_parts(values: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
    """Return (starts, lengths, bytes, at least one) of a column of texts."""
    _, offsets_buffer, data_buffer = values.buffers()
    offsets = np.zeros(1, np.int64)
    if len(values):
        raw = np.frombuffer(offsets_buffer, np.int32)
        offsets = raw[values.offset : values.offset + len(values) + 1].astype(np.int64)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    if len(data) == 0:
        data = np.zeros(1, np.uint8)
    return offsets[:-1], np.diff(offsets), data
