"""Sketches united group by group, a column at a time: what `hll_image.merge_sketches` does for one group.

Coupons of all small sketches are gathered, sorted and made distinct in one go; blocks of registers, 2^lg_k
bytes each, are taken one after another, because each is an operation over thousands of bytes by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rtolap.base.errors import Corrupted
from rtolap.columnar.group_ids import Ids
from rtolap.columnar.hll_image import (
    HEADER_BYTES,
    HLL_HEADER_BYTES,
    KEY_BITS,
    LG_K_MAX,
    LG_K_MIN,
    U8,
    U32,
    coupon_mode_max,
    image_of_distinct,
    image_of_registers,
    merge_sketches,
    sorted_distinct,
)

PIECE_ROWS = 2_048  # of images: with hundreds of coupons each, some tens of megabytes at work

_COMPACT = 8
_SET, _HLL = 1, 2
_PREAMBLE_INTS = np.array([2, 3, 10, 0], np.uint8)  # by mode
_TYPE_HLL8 = 2


def merge_groups(images: pa.Array | pa.ChunkedArray, groups: Ids, size: int) -> pa.BinaryArray:
    """Return one image for each of `size` groups, null for a group without any; nulls within are passed over.

    `groups[row]` is the group of `images[row]`; a result's lg_k is the smallest of its group's. Equal unions
    give equal bytes. Raises Corrupted for bytes that are no HLL sketch.
    """
    pieces = [_read(piece, groups[start : start + len(piece)]) for start, piece in _pieces(images)]
    lg_k = np.full(size, LG_K_MAX + 1, np.uint8)
    for piece in pieces:
        np.minimum.at(lg_k, piece.groups, piece.lg_k)
    united: dict[int, U8] = {}
    packed = np.zeros(0, np.uint64)
    for piece in pieces:
        _unite(united, *piece.registers(), lg_k)
        coupons = _absorbed(np.concatenate([packed, piece.packed_coupons()]), lg_k, united)
        packed = sorted_distinct(coupons)
    distinct = (packed & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    ends = np.cumsum(np.bincount((packed >> np.uint64(32)).astype(np.int64), minlength=size)).tolist()
    merged: list[bytes | None] = []
    for group, ((start, end), bits) in enumerate(zip(pairwise((0, *ends)), lg_k.tolist(), strict=True)):
        found_here: U32 = distinct[start:end]
        registers = united.get(group)
        if bits > LG_K_MAX:
            merged.append(None)
        elif registers is None:
            merged.append(image_of_distinct(found_here, bits))
        else:
            merged.append(image_of_registers(registers, bits))
    return pa.array(merged, pa.binary())


def _pieces(images: pa.Array | pa.ChunkedArray) -> Iterator[tuple[int, pa.Array]]:
    """Yield slices of PIECE_ROWS rows and where each begins: coupons are spread out a piece at a time."""
    at = 0
    for chunk in images.chunks if isinstance(images, pa.ChunkedArray) else [images]:
        for start in range(0, len(chunk), PIECE_ROWS):
            piece = chunk.slice(start, PIECE_ROWS)
            yield at, piece
            at += len(piece)


def _unite(united: dict[int, U8], groups: Ids, blocks: list[U8], lg_k: U8) -> None:
    """Unite registers with those of their group, folded to the group's size."""
    for group, block in zip(groups.tolist(), blocks, strict=True):
        width = 1 << int(lg_k[group])
        # A register's number is the low bits of the key: a smaller sketch folds a larger one together.
        folded = block if len(block) == width else block.reshape(-1, width).max(axis=0)
        known = united.get(group)
        if known is None:
            united[group] = folded.copy()
        else:
            np.maximum(known, folded, out=known)


def _absorbed(packed: NDArray[np.uint64], lg_k: U8, united: dict[int, U8]) -> NDArray[np.uint64]:
    """Put the coupons of groups that certainly are registers into `united`, and return the other coupons.

    Sorting is for what may stay a list. A group whose coupons fill more registers than a list may hold has
    more distinct ones than that.
    """
    owners = (packed >> np.uint64(32)).astype(np.int64)
    widths = 1 << lg_k.astype(np.int64)
    listed_max = np.array([coupon_mode_max(bits) for bits in range(LG_K_MAX + 2)])[lg_k]
    many = np.bincount(owners, minlength=len(lg_k)) > 2 * listed_max
    many[list(united)] = True
    mine = np.flatnonzero(many[owners])
    bases = np.zeros(len(lg_k) + 1, np.int64)
    np.cumsum(np.where(many, widths, 0), out=bases[1:])
    slots = bases[owners[mine]] + (packed[mine].astype(np.int64) & (widths[owners[mine]] - 1))
    registers = np.zeros(int(bases[-1]), np.uint8)
    np.maximum.at(registers, slots, (packed[mine].astype(np.uint32) >> KEY_BITS).astype(np.uint8))
    taken = np.zeros(len(lg_k), bool)
    for group in np.flatnonzero(many).tolist():
        block = registers[bases[group] : bases[group + 1]]
        if group in united:
            np.maximum(united[group], block, out=united[group])
        elif np.count_nonzero(block) > coupon_mode_max(int(lg_k[group])):
            united[group] = block.copy()
        taken[group] = group in united
    return packed[~taken[owners]]


class _Sketches:
    """The present images of one Arrow array, as places in its bytes. Raises Corrupted for anything else."""

    def __init__(self, images: pa.Array, groups: Ids) -> None:
        large = images.cast(pa.large_binary())
        present = np.flatnonzero(large.is_valid().to_numpy(zero_copy_only=False))
        _, offsets, data = large.buffers()
        ends = np.frombuffer(offsets, np.int64, len(large) + 1, large.offset * 8)
        self._data: U8 = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
        self._start, self._end = ends[:-1][present], ends[1:][present]
        _refuse(self._end - self._start < HEADER_BYTES, "cut short")
        self.groups = groups[present]
        self._present = present
        self._header: U8 = self._data[self._start[:, None] + np.arange(HEADER_BYTES)]
        self.lg_k: U8 = self._header[:, 3]
        self._mode = self._header[:, 7] & 3
        wrong = (self._header[:, 1] != 1) | (self._header[:, 2] != 7)
        wrong |= (self.lg_k < LG_K_MIN) | (self.lg_k > LG_K_MAX)
        _refuse(wrong | (self._header[:, 0] != _PREAMBLE_INTS[self._mode]), "no HLL header")

    def rows_of_other_kinds(self) -> Ids:
        kinds = self._header[:, 7] >> 2 & 3
        rows: Ids = self._present[(self._mode == _HLL) & (kinds != _TYPE_HLL8)]
        return rows

    def packed_coupons(self) -> NDArray[np.uint64]:
        """Return group << 32 | coupon for each coupon of lists and sets."""
        listed = np.flatnonzero(self._mode != _HLL)
        is_set = self._mode[listed] == _SET
        first = self._start[listed] + np.where(is_set, 12, 8)
        counts = self._counts(listed, first, is_set)
        _refuse(first + 4 * counts > self._end[listed], "cut short")
        # Words are read at the four alignments that images may have, so that nothing is copied bytewise.
        pieces = []
        for shift in range(4):
            chosen = np.flatnonzero(first % 4 == shift)
            words = self._data[shift : shift + max(0, len(self._data) - shift) // 4 * 4].view("<u4")
            lengths = counts[chosen]
            within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            coupons = words[np.repeat(first[chosen] // 4, lengths) + within]
            owners = np.repeat(self.groups[listed[chosen]], lengths)
            packed = owners.astype(np.uint64) << np.uint64(32) | coupons.astype(np.uint64)
            pieces.append(packed[coupons != 0])  # an updatable image holds empty places
        return np.concatenate(pieces)

    def registers(self) -> tuple[Ids, list[U8]]:
        """Return groups and blocks of HLL_8 registers."""
        blocked = np.flatnonzero(self._mode == _HLL)
        starts = self._start[blocked] + HLL_HEADER_BYTES
        widths = 1 << self.lg_k[blocked].astype(np.int64)
        _refuse(starts + widths > self._end[blocked], "cut short")
        pairs = zip(starts.tolist(), widths.tolist(), strict=True)
        return self.groups[blocked], [self._data[start : start + width] for start, width in pairs]

    def _counts(self, listed: Ids, first: Ids, is_set: NDArray[np.bool_]) -> Ids:
        """Return how many places for coupons each list or set has."""
        header, room = self._header[listed], (self._end[listed] - first) // 4
        _refuse(room < 0, "cut short")
        counts = header[:, 6].astype(np.int64)
        stated = self._data[first[is_set][:, None] - 4 + np.arange(4)]
        counts[is_set] = stated.astype(np.int64) @ (1 << np.array([0, 8, 16, 24]))
        table = np.minimum(1 << header[:, 4].astype(np.int64), room)
        return np.where(header[:, 5] & _COMPACT == 0, table, counts)


def _read(images: pa.Array, groups: Ids) -> _Sketches:
    """Read the images. Registers of fewer bits, which are never written here, are converted to HLL_8."""
    sketches = _Sketches(images, groups)
    odd = set(sketches.rows_of_other_kinds().tolist())
    if not odd:
        return sketches
    values = images.to_pylist()
    written = [merge_sketches([value]) if row in odd else value for row, value in enumerate(values)]
    return _Sketches(pa.array(written, images.type), groups)


def _refuse(wrong: NDArray[np.bool_], why: str) -> None:
    if wrong.any():
        raise Corrupted(
            "bytes that are no DataSketches HLL sketch", found=f"{int(wrong.sum())} sketches: {why}"
        )
