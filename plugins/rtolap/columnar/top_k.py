"""Frequent-items sketches of texts, group by group, in the public format of Apache DataSketches.

A sketch is an operation by itself: what is looped over are the different values of groups, and rows of
partials, never events.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasketches import frequent_items_error_type, frequent_strings_sketch

from rtolap.aggregates.approx_top_k import TEXT_CHARACTERS_MAX
from rtolap.base.errors import Corrupted
from rtolap.columnar.group_ids import Ids, with_values
from rtolap.columnar.sketch_groups import BROKEN, unite_sketches, united, written

_PREFACE = 8  # bytes that every sketch has
_LG_SIZE_MIN, _LG_SIZE_MAX = 3, 20
_WEIGHT = slice(16, 24)  # of the stream, in the bytes of a sketch with values
_ALL = frequent_items_error_type.NO_FALSE_NEGATIVES


class Frequency(NamedTuple):
    """Bounds of how often a value occurred; the estimate is the upper one."""

    value: str
    estimate: int
    lower: int
    upper: int


class FrequentTexts:
    """A frequent-items sketch that keeps its error.

    The library takes values off a full table by the count of the middle one, and remembers how much it took:
    the error of all counts. Where all counts were equal that empties the table, and an empty sketch is
    written, and merged, as one that has seen nothing: its error would be gone, and bounds of a union too
    narrow. So a value that occurred is put back with a count of 1, its lower bound. The weight of the stream
    stays what it was.

    Attributes:
        sketch: that of the library.
    """

    def __init__(self, sketch: frequent_strings_sketch, occurred: str = "") -> None:
        """Take a sketch, and one of the values that it is going to be updated with, if it is."""
        self.sketch = sketch
        self._put_back = 0
        self._occurred = occurred
        self._merged: frequent_strings_sketch | None = None

    def merge(self, other: FrequentTexts) -> None:
        other._keep()
        if other.is_empty():
            return
        self._keep()
        self._put_back += other._put_back
        self._merged = other.sketch
        self.sketch.merge(other.sketch)

    @property
    def total_weight(self) -> int:
        """How many values it has seen."""
        return int(self.sketch.total_weight) - self._put_back

    def is_empty(self) -> bool:
        """Return True for a sketch of no values."""
        return self.total_weight == 0

    def frequencies(self) -> list[Frequency]:
        """Return all values that it holds. Raises Corrupted for texts that are no UTF-8."""
        self._keep()
        return _held(self.sketch)

    def serialize(self) -> bytes:
        self._keep()
        image = bytes(self.sketch.serialize())
        if not self._put_back:
            return image
        weight = int.from_bytes(image[_WEIGHT], "little") - self._put_back
        return image[: _WEIGHT.start] + weight.to_bytes(8, "little") + image[_WEIGHT.stop :]

    def _keep(self) -> None:
        if self.sketch.num_active_items or self.is_empty():
            return
        if self._merged is not None:
            self._occurred = max(_held(self._merged), key=lambda each: (each.estimate, each.value)).value
        self.sketch.update(self._occurred, 1)
        self._put_back += 1


def sketch_frequencies(column: pa.Array, ids: Ids, groups: int, lg_size: int) -> pa.BinaryArray:
    """Return a sketch of each group's values, as texts; null for a group without any."""
    column, ids = with_values(column, ids)
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    distinct = max(1, len(coded.dictionary))
    packed = ids * distinct + coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    packed, counts = np.unique(packed, return_counts=True)
    used, places = np.unique(packed % distinct, return_inverse=True)
    texts = _texts(coded.dictionary.take(pa.array(used)))
    sketches: dict[int, FrequentTexts] = {}
    owners = (packed // distinct).tolist()
    for group, place, count in zip(owners, places.tolist(), counts.tolist(), strict=True):
        if group not in sketches:
            sketches[group] = FrequentTexts(frequent_strings_sketch(lg_size), texts[place])
        sketches[group].sketch.update(texts[place], count)
    return written(sketches, groups)


def unite_frequencies(
    images: pa.Array | pa.ChunkedArray, ids: Ids, groups: int, lg_size: int
) -> pa.BinaryArray:
    """Return the union of each group's sketches; null for a group without any. Raises Corrupted for bytes
    that are no frequent-items sketch of texts."""
    return unite_sketches(
        images, ids, groups, lambda: FrequentTexts(frequent_strings_sketch(lg_size)), read_sketch
    )


def read_sketch(image: bytes) -> FrequentTexts:
    """Return the sketch of the bytes. Raises Corrupted.

    The sizes are looked at first: the library makes room for what they say.
    """
    words, version, family, lg_max, lg_now = (*image[:5], *[0] * (5 - len(image[:5])))
    is_whole = len(image) >= _PREFACE and (version, family) == (1, 10) and words in (1, 4)
    if not is_whole or not _LG_SIZE_MIN <= lg_now <= lg_max <= _LG_SIZE_MAX:
        raise Corrupted(
            "bytes are no frequent-items sketch", found=f"{len(image)} bytes, {image[:8].hex()} …"
        )
    try:
        return FrequentTexts(frequent_strings_sketch.deserialize(image))
    except BROKEN as error:
        raise Corrupted("bytes are no frequent-items sketch", found=str(error)) from error


def most_frequent(images: list[bytes | None], count: int) -> list[Frequency]:
    """Return so many of the most frequent values of all sketches, by estimate and then by value; fewer where
    the sketches hold fewer.

    A value that is not among `count` of them did not occur more often than the last estimate; one that the
    sketches do not hold at all, not more often than any value's upper bound less its lower one.
    """
    sketch = united(images, read_sketch)
    if sketch is None:
        return []
    return sorted(sketch.frequencies(), key=lambda each: (-each.estimate, each.value))[:count]


def _held(sketch: frequent_strings_sketch) -> list[Frequency]:
    """Return all values of a sketch. Raises Corrupted for texts that are no UTF-8."""
    try:
        return [Frequency(*each) for each in sketch.get_frequent_items(_ALL)]
    except BROKEN as error:
        raise Corrupted("bytes are no frequent-items sketch", found=str(error)) from error


def _texts(values: pa.Array) -> list[str]:
    if pa.types.is_decimal(values.type):  # without exponents
        return [format(each, "f") for each in values.to_pylist()]
    texts: list[str] = pc.utf8_slice_codeunits(values.cast(pa.string()), 0, TEXT_CHARACTERS_MAX).to_pylist()
    return texts
