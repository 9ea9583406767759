"""Given KLL sketches of doubles → KLL sketches of the measure's k.

| byte | empty | one value | full |
|---|---|---|---|
| 0 | preamble ints 2 | 2 | 5 |
| 1, 2 | serial version 1, family 15 | 2, 15 | 1, 15 |
| 3 | flags: 1 empty, 2 level 0 is sorted, 4 one value | same | same |
| 4 | k u16, m u8, 0 | same | same |
| 8 | – | the value | n u64, smallest k u16, levels u8, 0 |
| 20 | – | – | where each level begins, u32 each; least, greatest, values, f64 each |

Little-endian. Values lie at the end of a room whose size follows from k, m and the number of levels. Each
value of level h stands for 2^h, and they add up to n. A sketch of floats has the same header and another
length.
"""

from __future__ import annotations

import struct

import numpy as np
from datasketches import kll_doubles_sketch
from numpy.typing import NDArray

from rtolap.columnar.given.fault import KLL_FAMILY, check_family, require, unfit
from rtolap.columnar.kll import K_MAX, K_MIN, read_sketch

_EMPTY, _SORTED, _SINGLE = 1, 2, 4
_HEADER_BYTES, _VALUE_BYTES = 20, 8
_M = 8
_LEVELS_MAX = 61
_DEPTH_MAX = 30  # of the capacity's formula in one step


def read_kll(image: bytes, k: int) -> bytes | None:
    """Return the sketch with the measure's k; None for one without values.

    Raises GivenSketchFault for other bytes, and for a sketch of a smaller k.
    """
    check_family(image, KLL_FAMILY, (1, 2))
    flags, own_k, m = image[3], int.from_bytes(image[4:6], "little"), image[6]
    require(flags <= _EMPTY | _SORTED | _SINGLE, f"flags {flags}")
    require(m == _M, f"expected m {_M}, found {m}")
    require(K_MIN <= own_k <= K_MAX, f"expected k {K_MIN} to {K_MAX}, found {own_k}")
    if flags & _EMPTY:
        require(not flags & _SINGLE, "a value in an empty sketch")
        require(image[:2] == b"\x02\x01", f"preamble {image[:2].hex()} of an empty sketch")
        require(len(image) == 8, f"expected 8 bytes, found {len(image)}")
        smallest_k = own_k
    elif flags & _SINGLE:
        require(image[:2] == b"\x02\x02", f"preamble {image[:2].hex()} of a sketch of one value")
        require(len(image) == 16, f"expected 16 bytes, found {len(image)}: is it one of floats?")
        (value,) = struct.unpack_from("<d", image, 8)
        require(bool(np.isfinite(value)), f"the value {value}")
        smallest_k = own_k
    else:
        smallest_k = _check_full(image, own_k)
    if smallest_k < k:
        raise unfit(f"expected k {k} or more, found {smallest_k}")
    if flags & _EMPTY:
        return None
    if own_k == k:
        return image
    united = kll_doubles_sketch(k)
    united.merge(read_sketch(image))
    return bytes(united.serialize())


def _check_full(image: bytes, k: int) -> int:
    """Check the bytes of a sketch of many values. Return the smallest k that went into it."""
    require(image[:2] == b"\x05\x01", f"preamble {image[:2].hex()} of a sketch of many values")
    require(len(image) >= _HEADER_BYTES, f"expected {_HEADER_BYTES} bytes or more, found {len(image)}")
    n, smallest_k, levels = struct.unpack_from("<QHB", image, 8)
    require(K_MIN <= smallest_k <= k, f"the smallest k {smallest_k} of {k}")
    require(1 <= levels <= _LEVELS_MAX, f"{levels} levels")
    room = _room(k, levels)
    values_at = _HEADER_BYTES + 4 * levels
    require(len(image) >= values_at, f"expected {values_at} bytes or more, found {len(image)}")
    begins = np.frombuffer(image, "<u4", levels, _HEADER_BYTES).astype(np.int64)
    ends = np.append(begins[1:], room)
    require(bool((begins <= ends).all()), "levels out of order")
    count = room - int(begins[0])
    expected = values_at + _VALUE_BYTES * (2 + count)
    require(len(image) == expected, f"expected {expected} bytes, found {len(image)}: is it one of floats?")
    weight = sum(size << level for level, size in enumerate((ends - begins).tolist()))
    require(weight == n, f"expected values that stand for {n}, found {weight}")
    require(count > 0, "no values")
    least, greatest = struct.unpack_from("<dd", image, values_at)
    values: NDArray[np.float64] = np.frombuffer(image, "<f8", count, values_at + 2 * _VALUE_BYTES)
    require(bool(np.isfinite(values).all()), "a value that is no finite number")
    require(bool(np.isfinite([least, greatest]).all()), "a bound that is no finite number")
    require(least <= values.min() and values.max() <= greatest, "a value beyond its bounds")
    first_sorted = 0 if image[3] & _SORTED else 1
    for level in range(first_sorted, levels):
        inside = values[begins[level] - begins[0] : ends[level] - begins[0]]
        require(bool((np.diff(inside) >= 0).all()), f"values of level {level} out of order")
    return int(smallest_k)


def _room(k: int, levels: int) -> int:
    return sum(max(_M, _width(k, levels - level - 1)) for level in range(levels))


def _width(k: int, depth: int) -> int:
    """Return k · (2/3)^depth, rounded as the library does."""
    if depth <= _DEPTH_MAX:
        return _rounded(k, depth)
    half = depth // 2
    return _rounded(_rounded(k, half), depth - half)


def _rounded(k: int, depth: int) -> int:
    return int(((k << 1 << depth) // 3**depth + 1) >> 1)
