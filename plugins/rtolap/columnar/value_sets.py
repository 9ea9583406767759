"""Sets of values as bytes, made, united and counted by whole columns: see `aggregates.count_distinct`.

Codes are sorted with the number of their group, all groups in one go. Codes of up to 8 bytes are numbers of
64 bits, those of 16 bytes are two. A text is its rank among the distinct texts of the column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.aggregates.accumulator import LG_MAX_MAX, SET_MARK, SetForm
from rtolap.base.errors import Corrupted, Refused
from rtolap.columnar.group_ids import Ids, with_values
from rtolap.columnar.hll import as_longs
from rtolap.columnar.hll_image import sorted_distinct
from rtolap.columnar.sum_bounds import whole_words

U8 = NDArray[np.uint8]
U64 = NDArray[np.uint64]

_WIDTHS = (0, 4, 8, 16)  # by the lowest two bits of a header
_END = 0xFF  # behind each text
_SIGN = np.uint64(1 << 63)
_SHIFT = np.uint64(32)
_RANK = np.uint64((1 << 32) - 1)
_OFFSET_MAX = (1 << 31) - 1


class _Numbers(NamedTuple):
    """Codes of a fixed width, each with its group.

    Attributes:
        words: the code as numbers, the most significant first: one, or two of 16 bytes.
    """

    width: int
    ids: Ids
    words: tuple[U64, ...]

    def distinct(self) -> _Numbers:
        """Return each code of a group once, ordered by group and code."""
        ids, words = self.ids, self.words
        if len(words) == 1 and len(ids):
            least = words[0].min()
            bits = int(words[0].max() - least).bit_length()
            if bits + int(ids.max()).bit_length() <= 64 and bits < 64:
                shift = np.uint64(bits)
                packed = sorted_distinct(ids.astype(np.uint64) << shift | (words[0] - least))
                codes = (packed & np.uint64((1 << bits) - 1)) + least
                return _Numbers(self.width, (packed >> shift).astype(np.int64), (codes,))
        order = np.lexsort((*reversed(words), ids))
        ids, words = ids[order], tuple(word[order] for word in words)
        is_first = np.ones(len(ids), bool)
        if len(ids):
            is_first[1:] = ids[1:] != ids[:-1]
            for word in words:
                is_first[1:] |= word[1:] != word[:-1]
        return _Numbers(self.width, ids[is_first], tuple(word[is_first] for word in words))

    def without(self, groups: NDArray[np.bool_]) -> _Numbers:
        keep = ~groups[self.ids]
        return _Numbers(self.width, self.ids[keep], tuple(word[keep] for word in self.words))

    def counts(self, groups: int) -> Ids:
        return np.bincount(self.ids, minlength=groups)

    def bytes_of(self, groups: int) -> Ids:
        return self.counts(groups) * self.width

    def data(self) -> U8:
        if self.width == 16:
            return np.stack(self.words, axis=1).astype(">u8").view(np.uint8).reshape(-1)
        return self.words[0].astype(f">u{self.width}").view(np.uint8)


class _Texts(NamedTuple):
    """Codes of texts, each with its group.

    Attributes:
        codes: the distinct codes of the column, large binary.
        ranks: the place of each code among `codes`.
    """

    ids: Ids
    ranks: Ids
    codes: pa.Array

    def distinct(self) -> _Texts:
        """Return each code of a group once, ordered by group and code."""
        order = pc.sort_indices(self.codes).to_numpy()
        places = np.empty(len(order), np.uint64)
        places[order] = np.arange(len(order), dtype=np.uint64)
        packed = sorted_distinct(self.ids.astype(np.uint64) << _SHIFT | places[self.ranks])
        ids, ranks = (packed >> _SHIFT).astype(np.int64), (packed & _RANK).astype(np.int64)
        return _Texts(ids, ranks, self.codes.take(pa.array(order)))

    def without(self, groups: NDArray[np.bool_]) -> _Texts:
        keep = ~groups[self.ids]
        return self._replace(ids=self.ids[keep], ranks=self.ranks[keep])

    def counts(self, groups: int) -> Ids:
        return np.bincount(self.ids, minlength=groups)

    def bytes_of(self, groups: int) -> Ids:
        lengths = pc.binary_length(self.codes).to_numpy()[self.ranks]
        totals = np.zeros(groups, np.int64)
        np.add.at(totals, self.ids, lengths)
        return totals

    def data(self) -> U8:
        return _data_of(self.codes.take(pa.array(self.ranks)))


_Codes = _Numbers | _Texts


class _Sets(NamedTuple):
    """Sets of one column, taken apart.

    Attributes:
        marks: the mark of each group that has one.
        headers: the distinct first bytes of the sets.
    """

    codes: _Codes
    marks: dict[int, bytes]
    headers: frozenset[int]


class SetSizes(NamedTuple):
    """The sizes of united sets.

    Attributes:
        counts: the number of values of each group, as far as no mark stands for it.
        too_large: the mark of the first group that has too many; None where there is none.
    """

    counts: pa.Array
    too_large: bytes | None


def sets_of_values(column: pa.Array, ids: Ids, groups: int, form: SetForm) -> pa.BinaryArray:
    """Return the set of each group's values, null for a group without any. Raises Refused beyond 2 GiB."""
    column, ids = with_values(column, ids)
    return _written(_codes_of_values(column, ids, form.width), groups, {}, form)


def united_sets(sets: pa.Array | pa.ChunkedArray, ids: Ids, groups: int, form: SetForm) -> pa.BinaryArray:
    """Return the union of each group's sets, null for a group without any.

    Raises Corrupted for bytes that are no sets of this form, and Refused beyond 2 GiB.
    """
    read = _read(sets, ids, form.width)
    if read.headers - {form.header}:
        raise _no_sets(f"the first byte {min(read.headers - {form.header})}, not {form.header}")
    return _written(read.codes, groups, read.marks, form)


def united_sizes(sets: pa.Array | pa.ChunkedArray, ids: Ids, groups: int) -> SetSizes:
    """Return the size of the union of each group's sets, 0 for a group without any. Raises Corrupted."""
    header = _first_header(sets)
    if header is None:
        read = _read(sets, ids, 0)
        return SetSizes(pa.array(np.zeros(groups, np.int64)), next(iter(read.marks.values()), None))
    read = _read(sets, ids, _WIDTHS[header & 3])
    if len(read.headers) > 1:
        raise _no_sets(f"sets of several forms: {sorted(read.headers)}")
    form = SetForm(_WIDTHS[header & 3], header >> 2, "")
    codes = read.codes.distinct()
    counts = codes.counts(groups)
    beyond = (counts > form.values_max) | (codes.bytes_of(groups) > form.bytes_max)
    marks = [*read.marks.values(), *([form.mark] if beyond.any() else [])]
    return SetSizes(pa.array(counts), marks[0] if marks else None)


def _written(codes: _Codes, groups: int, marks: dict[int, bytes], form: SetForm) -> pa.BinaryArray:
    codes = codes.distinct()
    lengths = codes.bytes_of(groups)
    beyond = (codes.counts(groups) > form.values_max) | (lengths > form.bytes_max)
    beyond[list(marks)] = True
    if beyond.any():
        codes = codes.without(beyond)
        lengths[beyond] = 0
    present = lengths > 0
    ends = np.cumsum(lengths + present)
    total = int(ends[-1]) if groups else 0
    if total > _OFFSET_MAX:
        raise Refused(
            f"the sets of distinct values of {form.column!r} in one table are too large",
            expected="at most 2 GiB",
            found=f"{total} bytes",
        )
    data = np.empty(total, np.uint8)
    starts = (ends - lengths - present)[present]
    is_code = np.ones(total, bool)
    is_code[starts] = False
    data[starts] = form.header
    data[is_code] = codes.data()
    offsets = np.concatenate(([0], ends)).astype(np.int32)
    validity = None if present.all() else pa.array(present).buffers()[1]
    sets = pa.Array.from_buffers(pa.binary(), groups, [validity, pa.py_buffer(offsets), pa.py_buffer(data)])
    return sets if not beyond.any() else pc.if_else(pa.array(beyond), pa.scalar(form.mark, pa.binary()), sets)


def _codes_of_values(column: pa.Array, ids: Ids, width: int) -> _Codes:
    if not width:
        coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        values = coded.dictionary.cast(pa.large_binary())
        end, nothing = (pa.scalar(each, pa.large_binary()) for each in (bytes((_END,)), b""))
        ended = pc.binary_join_element_wise(values, end, nothing)
        distinct = ended.dictionary_encode()  # a dictionary may hold a text twice
        ranks = distinct.indices.to_numpy()[coded.indices.to_numpy()]
        return _Texts(ids, ranks.astype(np.int64), distinct.dictionary)
    if pa.types.is_decimal(column.type):
        words = whole_words(column)
        if width == 8:
            return _Numbers(8, ids, (np.ascontiguousarray(words[:, 0]).view(np.uint64) ^ _SIGN,))
        low, high = (np.ascontiguousarray(words[:, place]).view(np.uint64) for place in (0, 1))
        return _Numbers(16, ids, (high ^ _SIGN, low))
    numbers = as_longs(column)
    if width == 4:
        return _Numbers(4, ids, ((numbers + (1 << 31)).view(np.uint64),))
    return _Numbers(8, ids, (numbers.view(np.uint64) ^ _SIGN,))


def _read(sets: pa.Array | pa.ChunkedArray, ids: Ids, width: int) -> _Sets:
    """Take sets apart, whose codes have this width; see `_WIDTHS`."""
    marks: dict[int, bytes] = {}
    headers: set[int] = set()
    owners: list[Ids] = []
    pieces: list[U8] = []
    start = 0
    for chunk in sets.chunks if isinstance(sets, pa.ChunkedArray) else [sets]:
        of_chunk = ids[start : start + len(chunk)]
        start += len(chunk)
        if chunk.null_count:
            keep = chunk.is_valid()
            chunk, of_chunk = chunk.drop_null(), of_chunk[keep.to_numpy(zero_copy_only=False)]
        starts, lengths, data = _parts(chunk)
        if not len(starts):
            continue
        if not lengths.all():
            raise _no_sets("no byte at all")
        first = data[starts]
        if (first == SET_MARK).any():
            rows = np.flatnonzero(first == SET_MARK)
            for row in rows.tolist():
                marks.setdefault(int(of_chunk[row]), data[starts[row] :][: lengths[row]].tobytes())
            keep_rows = np.flatnonzero(first != SET_MARK)
            chunk, of_chunk = chunk.take(pa.array(keep_rows)), of_chunk[keep_rows]
            starts, lengths, data = _parts(chunk)
            first = data[starts]
        headers.update(np.unique(first).tolist())
        is_code = np.ones(len(data), bool)
        is_code[starts] = False
        codes = data[is_code]
        owners.append(np.repeat(of_chunk, _counts(codes, lengths - 1, width)))
        pieces.append(codes)
    if any(_WIDTHS[header & 3] != width or header >> 2 > LG_MAX_MAX for header in headers):
        raise _no_sets(f"the first bytes {sorted(headers)}")
    return _Sets(_codes_of_bytes(pieces, owners, width), marks, frozenset(headers))


def _counts(codes: U8, lengths: Ids, width: int) -> Ids:
    """Return how many codes each set has. Raises Corrupted where codes do not fill it."""
    if width:
        if (lengths % width).any() or not lengths.all():
            raise _no_sets(f"lengths that are no multiples of {width} bytes")
        return lengths // width
    ends = np.cumsum(lengths)
    if not lengths.all() or (codes[ends - 1] != _END).any():
        raise _no_sets("a text without its end")
    passed = np.searchsorted(np.flatnonzero(codes == _END), ends)
    return np.diff(passed, prepend=0)


def _codes_of_bytes(pieces: Sequence[U8], owners: Sequence[Ids], width: int) -> _Codes:
    data = np.concatenate([np.zeros(0, np.uint8), *pieces])
    ids = np.concatenate([np.zeros(0, np.int64), *owners])
    if width == 16:
        pairs = data.view(">u8").astype(np.uint64).reshape(-1, 2)
        return _Numbers(16, ids, (np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])))
    if width:
        return _Numbers(width, ids, (data.view(f">u{width}").astype(np.uint64),))
    offsets = np.concatenate(([0], np.flatnonzero(data == _END) + 1))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    coded = pa.Array.from_buffers(pa.large_binary(), len(ids), buffers).dictionary_encode()
    return _Texts(ids, coded.indices.to_numpy().astype(np.int64), coded.dictionary)


def _parts(sets: pa.Array) -> tuple[Ids, Ids, U8]:
    """Return starts, lengths and bytes of an array without nulls."""
    if not len(sets):
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.uint8)
    _, offsets_buffer, _ = sets.buffers()
    is_large = pa.types.is_large_binary(sets.type)
    raw = np.frombuffer(offsets_buffer, np.int64 if is_large else np.int32)
    offsets = raw[sets.offset : sets.offset + len(sets) + 1].astype(np.int64)
    return offsets[:-1] - offsets[0], np.diff(offsets), _data_of(sets)


def _data_of(array: pa.Array) -> U8:
    """Return the bytes of all values of an array without nulls, one behind the other."""
    _, offsets_buffer, data = array.buffers()
    if not len(array) or data is None:
        return np.zeros(0, np.uint8)
    raw = np.frombuffer(offsets_buffer, np.int64 if pa.types.is_large_binary(array.type) else np.int32)
    return np.frombuffer(data, np.uint8)[raw[array.offset] : raw[array.offset + len(array)]]


def _first_header(sets: pa.Array | pa.ChunkedArray) -> int | None:
    """Return the first byte of the first set that is no mark; None without any."""
    for chunk in sets.chunks if isinstance(sets, pa.ChunkedArray) else [sets]:
        starts, lengths, data = _parts(chunk.drop_null())
        first = data[starts[lengths > 0]]
        first = first[first != SET_MARK]
        if len(first):
            return int(first[0])
    return None


def _no_sets(found: str) -> Corrupted:
    return Corrupted("bytes that are no sets of distinct values", found=found)
