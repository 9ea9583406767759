"""Given HLL sketches of any form (HLL_4, HLL_6, HLL_8, compact or updatable) → HLL_8 of the measure's size.

The bytes of lists, sets and HLL_8 stand in `hll_image`. HLL_6 packs a register in six bits. HLL_4 has half a
byte each, above the smallest register, and 15 for an exception that stands behind the registers, as a coupon
of its register.

Beside registers stand the sums of 2^-register (below 32, and from there on) and the number of registers at
the smallest. They are sums of whole multiples of small powers of two, so they are exact, and are compared.
"""

from __future__ import annotations

import struct

import numpy as np

from rtolap.columnar.given.fault import HLL_FAMILY, check_family, malformed, require, unfit
from rtolap.columnar.hll_image import (
    HLL_HEADER_BYTES,
    KEY_BITS,
    LG_K_MAX,
    LG_K_MIN,
    U8,
    U32,
    image_of_distinct,
    image_of_registers,
    inverse_powers,
    registers_of,
    sorted_distinct,
)

_LIST, _SET, _HLL = 0, 1, 2
_HLL_4, _HLL_8 = 0, 2
_EMPTY, _COMPACT, _REBUILD = 4, 8, 32  # the last: the sums are not kept
_FIRST = {_LIST: 8, _SET: 12, _HLL: HLL_HEADER_BYTES}
_PREAMBLE_INTS = {_LIST: 2, _SET: 3, _HLL: 10}
_RANK_MAX = 63
_EXCEPTION = 15
_LG_ARRAY_MAX = 26


def read_hll(image: bytes, lg_k: int) -> bytes | None:
    """Return the sketch as HLL_8 of 2^lg_k registers; None for one without values.

    Raises GivenSketchFault for other bytes, and for a sketch of fewer registers.
    """
    check_family(image, HLL_FAMILY, (1,))
    size, mode, kind = image[3], image[7] & 3, image[7] >> 2 & 3
    require(image[7] >> 4 == 0 and mode <= _HLL and kind <= _HLL_8, f"no mode and type {image[7]}")
    require(
        image[0] == _PREAMBLE_INTS[mode], f"expected {_PREAMBLE_INTS[mode]} preamble ints, found {image[0]}"
    )
    require(LG_K_MIN <= size <= LG_K_MAX, f"expected lg_k {LG_K_MIN} to {LG_K_MAX}, found {size}")
    require(len(image) >= _FIRST[mode], f"expected {_FIRST[mode]} bytes or more, found {len(image)}")
    if size < lg_k:
        raise unfit(f"expected lg_k {lg_k} or more, found {size}")
    if mode != _HLL:
        coupons = _coupons(image, mode)
        require((len(coupons) == 0) == bool(image[5] & _EMPTY), "the flag for an empty sketch is wrong")
        return image_of_distinct(coupons, lg_k) if len(coupons) else None
    require(not image[5] & _EMPTY, "the flag for an empty sketch is set")
    registers = _registers(image, size, kind)
    folded = registers.reshape(-1, 1 << lg_k).max(axis=0)
    return image_of_registers(folded, lg_k)


def _coupons(image: bytes, mode: int) -> U32:
    first = _FIRST[mode]
    count = image[6] if mode == _LIST else int.from_bytes(image[8:12], "little")
    places = count
    if not image[5] & _COMPACT:
        require(image[4] <= _LG_ARRAY_MAX, f"a table of 2^{image[4]} places")
        places = 1 << image[4]
    require(len(image) == first + 4 * places, f"expected {first + 4 * places} bytes, found {len(image)}")
    found = np.frombuffer(image, "<u4", places, first).astype(np.uint32)
    return _checked_coupons(found[found != 0], count)


def _checked_coupons(coupons: U32, count: int) -> U32:
    """Return the coupons in order."""
    distinct = sorted_distinct(coupons)
    require(len(distinct) == len(coupons) == count, f"expected {count} coupons, found {len(distinct)}")
    require(bool((distinct >> KEY_BITS > 0).all()), "a coupon without a rank")
    return distinct


def _registers(image: bytes, lg_k: int, kind: int) -> U8:
    width, low = 1 << lg_k, image[6]
    require(kind == _HLL_4 or low == 0, f"a smallest register of {low}")
    low_count, exceptions = struct.unpack_from("<II", image, 32)
    require(kind == _HLL_4 or exceptions == 0, f"{exceptions} exceptions")
    match kind:
        case 2:
            _require_bytes(image, width)
            registers: U8 = np.frombuffer(image, np.uint8, width, HLL_HEADER_BYTES)
        case 1:
            packed = width * 6 // 8 + 1
            _require_bytes(image, packed)
            octets = np.frombuffer(image, np.uint8, packed, HLL_HEADER_BYTES)
            bits = np.unpackbits(octets, bitorder="little")[: 6 * width].reshape(width, 6)
            registers = np.packbits(bits, axis=1, bitorder="little").reshape(width)
        case _:
            registers = _of_halves(image, width, low, exceptions)
    require(int(registers.max()) <= _RANK_MAX, f"a register of {registers.max()}")
    if not image[5] & _REBUILD:
        require(int(registers.min()) >= low, "a register below the smallest")
        found = int((registers == low).sum())
        require(found == low_count, f"expected {low_count} registers of {low}, found {found}")
        sums = inverse_powers(registers)
        require(struct.unpack_from("<dd", image, 16) == sums, "the sums of the registers are wrong")
    return registers


def _of_halves(image: bytes, width: int, low: int, count: int) -> U8:
    halves = width // 2
    require(len(image) >= HLL_HEADER_BYTES + halves, f"expected {HLL_HEADER_BYTES + halves} bytes or more")
    octets = np.frombuffer(image, np.uint8, halves, HLL_HEADER_BYTES)
    above = np.empty(width, np.uint8)
    above[0::2], above[1::2] = octets & 15, octets >> 4
    is_exception = above == _EXCEPTION
    found = int(is_exception.sum())
    require(found == count, f"expected {count} exceptions, found {found}")
    places = count
    if not image[5] & _COMPACT:
        require(image[4] <= _LG_ARRAY_MAX, f"a table of 2^{image[4]} places")
        # A table without exceptions is as large as the library likes, and says 2^0.
        places = 1 << image[4] if count else (len(image) - HLL_HEADER_BYTES - halves) // 4
    _require_bytes(image, halves + 4 * places)
    pairs = np.frombuffer(image, "<u4", places, HLL_HEADER_BYTES + halves).astype(np.uint32)
    coupons = _checked_coupons(pairs[pairs != 0], count)
    slots = coupons & np.uint32((1 << int(KEY_BITS)) - 1)
    if len(slots):
        require(int(slots.max()) < width, "an exception of no register")
    registers = np.where(is_exception, 0, above.astype(np.int64) + low)
    require(int(registers.max()) <= _RANK_MAX, "a register that is too large")
    exact = registers_of(coupons, width.bit_length() - 1)
    require(bool(((exact > 0) == is_exception).all()), "exceptions of other registers")
    return np.where(is_exception, exact, registers).astype(np.uint8)


def _require_bytes(image: bytes, behind_header: int) -> None:
    expected = HLL_HEADER_BYTES + behind_header
    if len(image) != expected:
        raise malformed(f"expected {expected} bytes, found {len(image)}")
