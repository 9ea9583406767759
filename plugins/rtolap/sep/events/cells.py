"""A cell block → columns: the cells of all WAL edits of a call, in the order in which they were sent.

A cell block is a sequence of [int32 length][KeyValue]; integers are big-endian, lengths in bytes:

    int32 key length | int32 value length | key | value | tags
    key   int16 row length | row | int8 family length | family | qualifier | int64 timestamp | int8 type
    tags  nothing, or uint16 length and so many bytes

Only the starts of cells are found one after the other; all else is arithmetic on whole columns. Every
boundary between two parts of a cell becomes an offset of one binary array over the block, and the parts that
are wanted are taken from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rtolap.base.errors import Corrupted, TooLarge
from rtolap.sep.events.edit_batch import CellType

# The smallest cell: both lengths, and a key with nothing but its fixed parts.
_KEY_FIXED_BYTES: Final = 12
_CELL_BYTES_MIN: Final = 8 + _KEY_FIXED_BYTES
_BLOCK_BYTES_MAX: Final = 2**31
_SAME_MIN, _SAME_MAX = 16, 4096  # so many cells of one length, and many more are likely
_LENGTH: Final = Struct(">i").unpack_from
_TYPES: Final = np.zeros(256, bool)
_TYPES[[int(kind) for kind in CellType]] = True

# Parts of a cell, in order; each begins where the one before it ends.
_ROW, _FAMILY, _QUALIFIER, _VALUE, _TAGS, _PARTS = 1, 3, 4, 6, 8, 9

Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CellBlock:
    """All cells of a block, a row each; the binary columns are made when they are requested.

    `rows()`, `families()` … copy the bytes of the cells at `places`, all of them where it is None.
    """

    timestamp_ms: NDArray[np.int64]
    type: NDArray[np.uint8]
    has_tags: bool
    _parts: pa.BinaryArray

    def __len__(self) -> int:
        return len(self.type)

    def rows(self, places: Places | None = None) -> pa.BinaryArray:
        return self._part(_ROW, places)

    def families(self, places: Places | None = None) -> pa.BinaryArray:
        return self._part(_FAMILY, places)

    def qualifiers(self, places: Places | None = None) -> pa.BinaryArray:
        return self._part(_QUALIFIER, places)

    def values(self, places: Places | None = None) -> pa.BinaryArray:
        return self._part(_VALUE, places)

    def tags(self, places: Places | None = None) -> pa.BinaryArray:
        """Return raw tags without their total length; empty where a cell has none."""
        return self._part(_TAGS, places)

    def _part(self, part: int, places: Places | None) -> pa.BinaryArray:
        chosen = np.arange(len(self)) if places is None else places
        return self._parts.take(pa.array(chosen * _PARTS + part))


def decode_cells(block: bytes | bytearray | memoryview, cells_max: int | None = None) -> CellBlock:
    """Decode a whole cell block, with or without tags; it is kept alive by the answer.

    Corrupted: a cell is torn, or its lengths or its type contradict the format. TooLarge: 2 GiB or more, or
    more cells than `cells_max`.
    """
    view = memoryview(block).cast("B")
    starts = _cell_starts(view, cells_max)
    if not len(starts):
        return CellBlock(np.empty(0, np.int64), np.empty(0, np.uint8), False, pa.array([], pa.binary()))
    size_bytes = view.nbytes
    int32, int16 = _at_any_byte(view, ">i4"), _at_any_byte(view, ">u2")
    byte = np.frombuffer(view, np.uint8)

    ends = np.append(starts[1:], size_bytes)
    key_bytes = int32[starts + 4].astype(np.int64)
    value_bytes = int32[starts + 8].astype(np.int64)
    rest_bytes = ends - starts - 12 - key_bytes - value_bytes
    _require(
        (key_bytes >= _KEY_FIXED_BYTES) & (value_bytes >= 0) & (rest_bytes >= 0),
        starts,
        "lengths of key and value that fill its length at most",
    )
    row_bytes = int16[starts + 12].astype(np.int64)
    _require(row_bytes + _KEY_FIXED_BYTES <= key_bytes, starts, "a row that ends within its key")
    family_at = starts + 14 + row_bytes
    family_bytes = byte[family_at].astype(np.int64)
    _require(
        row_bytes + family_bytes + _KEY_FIXED_BYTES <= key_bytes, starts, "a family that ends within its key"
    )
    key_end = starts + 12 + key_bytes
    value_end = key_end + value_bytes
    types = byte[key_end - 1]
    _require(_TYPES[types], starts, f"a type of {', '.join(str(int(kind)) for kind in CellType)}")
    tagged = rest_bytes > 0
    has_tags = bool(tagged.any())
    if has_tags:
        _require((rest_bytes >= 2) | ~tagged, starts, "no tags, or tags with a length")
        places = np.flatnonzero(tagged)
        tags_bytes = int16[value_end[places]].astype(np.int64)
        _require(tags_bytes + 2 == rest_bytes[places], starts[places], "tags that end with their cell")

    offsets = np.empty((len(starts), _PARTS), np.int32)
    offsets[:, 0] = starts
    offsets[:, _ROW] = starts + 14
    offsets[:, 2] = family_at
    offsets[:, _FAMILY] = family_at + 1
    offsets[:, _QUALIFIER] = family_at + 1 + family_bytes
    offsets[:, 5] = key_end - 9
    offsets[:, _VALUE] = key_end
    offsets[:, 7] = value_end
    offsets[:, _TAGS] = value_end + 2 * tagged
    parts = pa.Array.from_buffers(
        pa.binary(),
        offsets.size,
        [None, pa.py_buffer(np.append(offsets.ravel(), np.int32(size_bytes))), pa.py_buffer(view)],
    )
    return CellBlock(_at_any_byte(view, ">i8")[key_end - 9].astype(np.int64), types, has_tags, parts)


def _cell_starts(view: memoryview, cells_max: int | None = None) -> Places:
    """Find where each cell begins: from cell to cell, and in one step over cells of one length."""
    starts: list[int] = []
    append, size_bytes, place = starts.append, view.nbytes, 0
    if size_bytes >= _BLOCK_BYTES_MAX:
        raise TooLarge("a cell block is too large", expected="less than 2 GiB", found=f"{size_bytes} bytes")
    last = size_bytes - _CELL_BYTES_MIN - 4
    most = size_bytes if cells_max is None else cells_max
    before, same = 0, 0
    while place <= last:
        append(place)
        (length,) = _LENGTH(view, place)
        if length < _CELL_BYTES_MIN:
            raise Corrupted(
                f"the cell at byte {place} of a cell block is broken",
                expected=f"a length of at least {_CELL_BYTES_MIN} bytes",
                found=length,
            )
        place += 4 + length
        if length != before:
            before, same = length, 0
            if len(starts) > most:
                raise _too_many_cells(most)
            continue
        same += 1
        if same == _SAME_MIN:
            same = 0
            behind = _end_of_equal_cells(view, place, length)
            starts.extend(range(place, behind, 4 + length))
            place = behind
        if len(starts) > most:
            raise _too_many_cells(most)
    if place != size_bytes:
        raise Corrupted(
            "a cell block is torn",
            expected=f"{len(starts)} cells that end after {size_bytes} bytes",
            found=f"an end at byte {place}",
        )
    return np.array(starts, np.int64)


def _too_many_cells(most: int) -> TooLarge:
    return TooLarge(
        "a call holds too many cells",
        expected=f"at most {most}",
        found="more",
        action="lower replication.source.size.capacity of the region servers, or raise RTOLAP_SEP_CELLS_MAX",
    )


def _end_of_equal_cells(view: memoryview, place: int, length: int) -> int:
    """Return where the row of whole cells of just this length ends that begins at `place`."""
    stride = 4 + length
    count = min((view.nbytes - place) // stride, _SAME_MAX)
    lengths = np.ndarray((count,), ">i4", view, offset=place, strides=(stride,))
    other = np.flatnonzero(lengths != length)
    return place + stride * (int(other[0]) if len(other) else count)


def _at_any_byte(view: memoryview, kind: str) -> NDArray[Any]:
    """Show the number that begins at each byte of the block, aligned or not."""
    size = np.dtype(kind).itemsize
    return np.ndarray((max(view.nbytes - size + 1, 0),), kind, view, strides=(1,))


def _require(holds: NDArray[np.bool_], starts: Places, expected: str) -> None:
    if not holds.all():
        place = int(starts[np.flatnonzero(~holds)[0]])
        raise Corrupted(f"the cell at byte {place} of a cell block is broken", expected=expected)
