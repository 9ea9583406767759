"""The smallest texts of groups within a bound of bytes, made and united: see `aggregates.group_concat`.

What is looped over are groups, and rows of partials, never events.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rtolap.aggregates.group_concat import HEADER_BYTES, SmallestTexts
from rtolap.base.errors import Corrupted
from rtolap.columnar.group_ids import Ids, with_values
from rtolap.columnar.hll_image import sorted_distinct

_END = b"\xff"
_SHIFT = np.uint64(32)
_RANK = np.uint64((1 << 32) - 1)


class Shown(NamedTuple):
    """The texts of a union that are shown, ascending. `is_cut`: it has more."""

    texts: list[bytes]
    is_cut: bool


def texts_of_values(column: pa.Array, ids: Ids, groups: int, bytes_max: int) -> pa.BinaryArray:
    """Return the partial of each group's texts; null for a group without any."""
    column, ids = with_values(column, ids)
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    texts = pc.binary_slice(coded.dictionary.cast(pa.binary()), 0, bytes_max + 1)
    order = pc.sort_indices(texts).to_numpy()
    ranks = np.empty(len(order), np.uint64)
    ranks[order] = np.arange(len(order), dtype=np.uint64)
    mine = ranks[coded.indices.to_numpy(zero_copy_only=False)]
    packed = sorted_distinct(ids.astype(np.uint64) << _SHIFT | mine)
    owners, places = (packed >> _SHIFT).astype(np.int64), order[(packed & _RANK).astype(np.int64)]
    counts = pc.binary_length(texts).to_numpy()[places].astype(np.int64) + 1
    before = np.cumsum(counts) - counts
    first = np.searchsorted(owners, np.arange(groups))
    is_there = first < len(owners)
    base = np.zeros(groups, np.int64)
    base[is_there] = before[first[is_there]]
    kept = before - base[owners] <= bytes_max  # up to and with the first text beyond the bound
    owners, values = owners[kept], texts.take(pa.array(places[kept])).to_pylist()
    ends = np.searchsorted(owners, np.arange(groups), side="right").tolist()
    header = SmallestTexts(bytes_max).header
    made = [_image(header, values[start:end]) if end > start else None for start, end in pairwise((0, *ends))]
    return pa.array(made, pa.binary())


def united_texts(images: pa.Array | pa.ChunkedArray, ids: Ids, groups: int, bytes_max: int) -> pa.BinaryArray:
    """Return the union of each group's partials; null for a group without any. Raises Corrupted for other
    bytes."""
    header = SmallestTexts(bytes_max).header
    alone: dict[int, bytes] = {}
    found: dict[int, set[bytes]] = {}
    for group, image in zip(ids.tolist(), images.to_pylist(), strict=True):
        if image is None:
            continue
        texts = _texts(image, header)
        if group in found:
            found[group].update(texts)
        elif group in alone:
            found[group] = {*_texts(alone.pop(group), header), *texts}
        else:
            alone[group] = image
    united = alone | {group: _image(header, _smallest(texts, bytes_max)) for group, texts in found.items()}
    return pa.array([united.get(group) for group in range(groups)], pa.binary())


def shown_texts(images: Iterable[bytes | None]) -> Shown | None:
    """Return the texts of the union of partials of one measure; None of no values. Raises Corrupted."""
    known = [image for image in images if image is not None]
    if not known:
        return None
    header = known[0][:HEADER_BYTES]
    texts = _smallest({text for image in known for text in _texts(image, header)}, _bound(header))
    is_cut = sum(len(text) + 1 for text in texts) > _bound(header)
    return Shown(texts[:-1] if is_cut else texts, is_cut)


def _smallest(texts: Iterable[bytes], bytes_max: int) -> list[bytes]:
    kept: list[bytes] = []
    count = 0
    for text in sorted(texts):
        kept.append(text)
        count += len(text) + 1
        if count > bytes_max:
            break
    return kept


def _image(header: bytes, texts: list[bytes]) -> bytes:
    return header + _END.join(texts) + _END


def _bound(header: bytes) -> int:
    return int.from_bytes(header, "big")


def _texts(image: bytes, header: bytes) -> list[bytes]:
    if len(header) < HEADER_BYTES or image[:HEADER_BYTES] != header or not image.endswith(_END):
        raise Corrupted(
            "bytes are no joined texts",
            expected=f"a header {header.hex()} and texts",
            found=f"{len(image)} bytes, {image[:8].hex()} …",
        )
    return image[HEADER_BYTES:-1].split(_END)
