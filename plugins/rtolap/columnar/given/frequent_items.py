"""Given frequent-items sketches of texts → such sketches of the measure's size.

| byte | empty | full |
|---|---|---|
| 0 | preamble longs 1 | 4 |
| 1, 2 | serial version 1, family 10 | same |
| 3, 4 | lg of the largest and of the present table | same |
| 5 | flags: 1 and 4 empty | 0 |
| 8 | – | values u32, 0 u32, total weight u64, error u64 |
| 32 | – | weights, u64 each; values: length u32 and UTF-8 |

Little-endian. A weight is a lower bound; together they are the total weight, where the error is 0.
"""

from __future__ import annotations

import struct

from datasketches import frequent_strings_sketch

from rtolap.aggregates.approx_top_k import TEXT_CHARACTERS_MAX
from rtolap.columnar.given.fault import FREQUENT_ITEMS_FAMILY, check_family, malformed, require, unfit
from rtolap.columnar.top_k import FrequentTexts, read_sketch

_EMPTY = 5
_HEADER_BYTES = 32
_LG_MIN, _LG_MAX = 3, 20
_WEIGHT_MAX = (1 << 63) - 1


def read_frequent_items(image: bytes, lg_size: int) -> bytes | None:
    """Return the sketch with a table of 2^lg_size places; None for one without values.

    Raises GivenSketchFault for other bytes, and for a sketch with a smaller table.
    """
    check_family(image, FREQUENT_ITEMS_FAMILY, (1,))
    own, now, flags = image[3], image[4], image[5]
    require(_LG_MIN <= now <= own <= _LG_MAX, f"tables of 2^{now} of 2^{own} places")
    is_empty = image[0] == 1
    if is_empty:
        require(flags & ~_EMPTY == 0 and flags != 0, f"flags {flags} of an empty sketch")
        require(len(image) == 8, f"expected 8 bytes, found {len(image)}")
    else:
        require(image[0] == 4, f"expected 4 preamble longs, found {image[0]}")
        require(flags == 0, f"flags {flags}")
        _check_full(image, now)
    if own < lg_size:
        raise unfit(f"expected a table of 2^{lg_size} places or more, found 2^{own}")
    if is_empty:
        return None
    if own == lg_size:
        return image
    united = FrequentTexts(frequent_strings_sketch(lg_size))
    united.merge(read_sketch(image))
    return united.serialize()


def _check_full(image: bytes, lg_now: int) -> None:
    require(len(image) >= _HEADER_BYTES, f"expected {_HEADER_BYTES} bytes or more, found {len(image)}")
    count, total, error = struct.unpack_from("<I4xQQ", image, 8)
    require(1 <= count <= 3 << lg_now >> 2, f"{count} values in a table of 2^{lg_now} places")
    require(error <= total <= _WEIGHT_MAX, f"an error of {error} in a weight of {total}")
    at = _HEADER_BYTES + 8 * count
    require(len(image) >= at, f"expected {at} bytes or more, found {len(image)}")
    weights = struct.unpack_from(f"<{count}Q", image, _HEADER_BYTES)
    known = sum(weights)
    require(min(weights) > 0, "a weight of 0")
    # What is left of the total was taken off, the error at least once.
    require(known + error <= total if error else known == total, f"weights of {known} in {total}")
    seen: set[bytes] = set()
    for _ in range(count):
        require(len(image) >= at + 4, "a value is cut short")
        size = int.from_bytes(image[at : at + 4], "little")
        at += 4 + size
        require(len(image) >= at, "a value is cut short")
        seen.add(_checked_text(image[at - size : at]))
    require(len(image) == at, f"expected {at} bytes, found {len(image)}")
    require(len(seen) == count, "a value that comes twice")


def _checked_text(text: bytes) -> bytes:
    try:
        characters = len(text.decode())
    except UnicodeDecodeError as error:
        raise malformed(f"a value that is no UTF-8: {error.reason}") from error
    if characters > TEXT_CHARACTERS_MAX:
        raise unfit(f"expected values of at most {TEXT_CHARACTERS_MAX} characters, found {characters}")
    return text
