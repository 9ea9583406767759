"""HLL_8 sketches as bytes (Apache DataSketches, serial version 1, family 7), read and written directly.

| byte | LIST | SET | HLL |
|---|---|---|---|
| 0 | preamble ints 2 | 3 | 10 |
| 1, 2 | serial version 1, family 7 | same | same |
| 3 | lg_k | lg_k | lg_k |
| 4 | lg of the array's ints | lg of the table's ints | 0 |
| 5 | flags: 4 empty, 8 compact, 16 out of order | same | same |
| 6 | count of coupons | 0 | smallest register (0 for HLL_8) |
| 7 | mode (0 LIST, 1 SET, 2 HLL) + 4 × type (2 for HLL_8) | same | same |
| 8 | coupons, u32 each | count u32, coupons | f64 HIP, kxq0, kxq1; u32 zero registers, 0; 2^lg_k bytes |

Little-endian. The mode follows from the number of distinct coupons alone, at the thresholds that DataSketches
promotes at; so equal sets give equal bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import pairwise
from typing import TypeVar

import datasketches
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rtolap.base.errors import Corrupted
from rtolap.columnar.chunks import single_chunk

U32 = NDArray[np.uint32]
U8 = NDArray[np.uint8]

T = TypeVar("T", bound=np.generic)

_EMPTY, _COMPACT, _OUT_OF_ORDER = 4, 8, 16
_LIST, _SET, _HLL = 0, 1, 2
_TYPE_HLL8 = 2
_PREAMBLE_INTS = {_LIST: 2, _SET: 3, _HLL: 10}
_LIST_MAX = 7  # an eighth coupon turns a list into a set
HEADER_BYTES, HLL_HEADER_BYTES = 8, 40
KEY_BITS = np.uint32(26)
LG_K_MIN, LG_K_MAX = 4, 21


def coupon_mode_max(lg_k: int) -> int:
    """Return the largest number of distinct coupons that is still kept as a list or a set."""
    return _LIST_MAX if lg_k < 8 else 3 * (1 << (lg_k - 3)) // 4


def sketches_from_coupons(lists: pa.ListArray | pa.ChunkedArray, lg_k: int) -> pa.BinaryArray:
    """Return one compact image a list; null lists count as empty. Lists may hold a coupon twice."""
    lists = single_chunk(lists)
    lengths = _lengths(lists)
    rows = np.repeat(np.arange(len(lists), dtype=np.uint64), lengths)
    flat = lists.flatten().to_numpy(zero_copy_only=False)
    # One sort for all lists makes every list sorted and distinct.
    packed = sorted_distinct(rows << np.uint64(32) | flat.astype(np.uint64))
    counts = np.bincount((packed >> np.uint64(32)).astype(np.int64), minlength=len(lists))
    distinct = (packed & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    ends = np.cumsum(counts).tolist()
    images = [image_of_distinct(distinct[start:end], lg_k) for start, end in pairwise((0, *ends))]
    return pa.array(images, pa.binary())


def _lengths(lists: pa.ListArray) -> NDArray[np.int64]:
    return np.array(lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False), np.int64)


def sorted_distinct(values: NDArray[T]) -> NDArray[T]:
    """Return what np.unique returns, by sorting: its hash table takes several times as long for millions of
    values."""
    ordered = np.sort(values)
    is_first = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]


def image_of_coupons(coupons: U32, lg_k: int) -> bytes:
    return image_of_distinct(sorted_distinct(coupons), lg_k)


def image_of_distinct(distinct: U32, lg_k: int) -> bytes:
    """Return the image of distinct coupons. `distinct` is sorted, without repetitions."""
    if len(distinct) > coupon_mode_max(lg_k):
        return image_of_registers(registers_of(distinct, lg_k), lg_k)
    return _coupons_image(distinct, lg_k)


def registers_of(coupons: U32, lg_k: int) -> U8:
    registers = np.zeros(1 << lg_k, np.uint8)
    np.maximum.at(registers, coupons & np.uint32((1 << lg_k) - 1), (coupons >> KEY_BITS).astype(np.uint8))
    return registers


def prune_coupons(coupons: U32, lg_k: int) -> U32:
    """Return the coupons that decide the sketch: the highest of each register, once there are too many to
    list.

    Bounds a group's list at 2^lg_k entries without changing any image made of it, now or after merging.
    """
    if len(coupons) <= 1 << lg_k:
        return coupons
    slots = coupons & np.uint32((1 << lg_k) - 1)
    order = np.lexsort((coupons, slots))
    last = np.flatnonzero(np.diff(slots[order], append=np.uint32(1 << lg_k)))
    highest = coupons[order][last]
    return highest if len(highest) > coupon_mode_max(lg_k) else coupons


def merge_sketches(images: Iterable[bytes], lg_k: int | None = None) -> bytes:
    """Return one image for the union. `lg_k`: of the result; by default the smallest of the images'.

    Raises ValueError for no image at all without an `lg_k`, Corrupted for bytes that are no HLL sketch.
    """
    parsed = [_parse(image) for image in images]
    if lg_k is None and not parsed:
        raise ValueError("a union of no sketches needs an lg_k")
    smallest = min([size for size, _, _ in parsed] + ([lg_k] if lg_k is not None else []))
    listed = [coupons for _, coupons, _ in parsed if coupons is not None]
    distinct = sorted_distinct(np.concatenate(listed)) if listed else np.zeros(0, np.uint32)
    blocks = [(size, registers) for size, _, registers in parsed if registers is not None]
    if not blocks and len(distinct) <= coupon_mode_max(smallest):
        return _coupons_image(distinct, smallest)
    merged = registers_of(distinct, smallest)
    for _, registers in blocks:
        # A register's number is the low bits of the key: a smaller sketch folds a larger one together.
        folded = registers.reshape(-1, 1 << smallest).max(axis=0)
        np.maximum(merged, folded, out=merged)
    return image_of_registers(merged, smallest)


def estimate(image: bytes) -> float:
    """Return the number of distinct values; equal for equal sets of coupons. Raises Corrupted."""
    lg_k, coupons, registers = _parse(image)
    if registers is not None:
        canonical = image_of_registers(registers, lg_k)
    else:
        assert coupons is not None, "an image is coupons or registers"
        canonical = _coupons_image(sorted_distinct(coupons), lg_k)
    return float(datasketches.hll_sketch.deserialize(canonical).get_estimate())


def is_empty(image: bytes) -> bool:
    """Return True for a sketch of no value, as this module writes it."""
    return bool(image[5] & _EMPTY)


def _coupons_image(distinct: U32, lg_k: int) -> bytes:
    count = len(distinct)
    flags = _COMPACT | (_EMPTY if count == 0 else 0)
    body = distinct.astype("<u4").tobytes()
    if count <= _LIST_MAX:
        return bytes((2, 1, 7, lg_k, 3, flags, count, _LIST | _TYPE_HLL8 << 2)) + body
    lg_table = 5
    while 4 * count > 3 * (1 << lg_table):
        lg_table += 1
    header = bytes((3, 1, 7, lg_k, lg_table, flags, 0, _SET | _TYPE_HLL8 << 2))
    return header + struct.pack("<I", count) + body


def image_of_registers(registers: U8, lg_k: int) -> bytes:
    """Return the image of registers. The kxq sums are exact: all terms are whole multiples of 2^-31 and 2^-63
    and few enough for 53 bits."""
    kxq0, kxq1 = inverse_powers(registers)
    zeros = int((registers == 0).sum())
    header = bytes((10, 1, 7, lg_k, 0, _COMPACT | _OUT_OF_ORDER, 0, _HLL | _TYPE_HLL8 << 2))
    return header + struct.pack("<dddII", 0.0, kxq0, kxq1, zeros, 0) + registers.tobytes()


def inverse_powers(registers: U8) -> tuple[float, float]:
    """Return the sums of 2^-register, of registers below 32 and of the others, both exact."""
    counts = np.bincount(registers, minlength=64)
    weights = np.ldexp(counts.astype(np.float64), -np.arange(len(counts)))
    return float(weights[:32].sum()), float(weights[32:].sum())


def _parse(image: bytes) -> tuple[int, U32 | None, U8 | None]:
    """Return (lg_k, coupons or None, registers or None)."""
    if len(image) < 8 or image[1] != 1 or image[2] != 7 or not LG_K_MIN <= image[3] <= LG_K_MAX:
        raise Corrupted(
            "not a DataSketches HLL sketch", expected="serial version 1, family 7", found=image[:8].hex()
        )
    lg_k, mode, kind = image[3], image[7] & 3, image[7] >> 2 & 3
    if image[0] != _PREAMBLE_INTS.get(mode):
        raise Corrupted("an HLL sketch has an impossible header", found=image[:8].hex())
    if mode == _HLL and kind != _TYPE_HLL8:
        return _parse(_as_hll8(image, lg_k))
    if mode == _HLL:
        if len(image) < HLL_HEADER_BYTES + (1 << lg_k):
            raise _short(image)
        return lg_k, None, np.frombuffer(image, np.uint8, 1 << lg_k, HLL_HEADER_BYTES)
    if mode == _LIST:
        start, count = 8, image[6]
    elif mode == _SET and len(image) >= 12:
        start, count = 12, int.from_bytes(image[8:12], "little")
    else:
        raise _short(image)
    if not image[5] & _COMPACT:  # an updatable image holds its whole hash table; empty places are zero
        count = min(1 << image[4], (len(image) - start) // 4)
    if len(image) < start + 4 * count:
        raise _short(image)
    coupons = np.frombuffer(image, "<u4", count, start).astype(np.uint32)
    return lg_k, coupons[coupons != 0], None


def _as_hll8(image: bytes, lg_k: int) -> bytes:
    union = datasketches.hll_union(lg_k)
    try:
        union.update(datasketches.hll_sketch.deserialize(image))
    except (ValueError, RuntimeError) as error:
        raise Corrupted("not a DataSketches HLL sketch", found=str(error)) from error
    return bytes(union.get_result(datasketches.tgt_hll_type.HLL_8).serialize_compact())


def _short(image: bytes) -> Corrupted:
    return Corrupted("an HLL sketch is cut short", found=f"{len(image)} bytes, header {image[:8].hex()}")
