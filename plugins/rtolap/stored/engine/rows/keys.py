"""Keys, a column at a time: order, equality, hashes. Nulls come first, strings by their bytes.

A key column becomes whole numbers in the same order (strings and long decimals by the rank of their distinct
values), and the columns of a key one number where their ranges allow it, which sorts several times faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.columnar.murmur3 import hash_strings

Longs = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Words = NDArray[np.uint64]
_SHORT_DECIMAL_DIGITS = 18  # fit 64 bits
_RANGE_MAX = 1 << 63
_WORD_MAX = (1 << 64) - 1
_NULL_HASH = np.uint64(0x9E3779B97F4A7C15)
_STEP = np.uint64(0xD6E8FEB86659FD93)


class Order(NamedTuple):
    """The order of keys.

    Attributes:
        rows: places that sort them; None where they are sorted as they are.
        starts: where in that order each distinct key begins.
    """

    rows: Longs | None
    starts: Longs


def sort(keys: Sequence[pa.Array], ties: Sequence[pa.Array] = ()) -> Order:
    """Sort keys stably. `ties` orders rows of equal keys, and does not part them."""
    key_codes = [code for column in keys for code in _codes(column)]
    rows = _sorted_rows(_words(key_codes + [code for column in ties for code in _codes(column)]))
    changed = np.ones(len(keys[0]), np.bool_)
    if len(changed):
        changed[1:] = False
    for word in _words(key_codes):
        ordered = word if rows is None else word[rows]
        changed[1:] |= ordered[1:] != ordered[:-1]
    return Order(rows, np.flatnonzero(changed))


def sorted_rows(keys: Sequence[pa.Array]) -> Longs | None:
    """Return the places that sort keys stably; None where they are sorted as they are."""
    return _sorted_rows(_words([code for column in keys for code in _codes(column)]))


def rows_below(keys: Sequence[pa.Array], bound: Sequence[pa.Scalar], *, inclusive: bool = False) -> int:
    """Return how many of the sorted rows have a key smaller than (or equal to) the bound."""
    rows = len(keys[0])
    below = pa.repeat(pa.scalar(inclusive), rows)
    for column, value in zip(reversed(keys), reversed(bound), strict=True):
        column, value = _comparable(column), _comparable(value)
        if value.is_valid:
            less, equal = pc.less(column, value), pc.equal(column, value)
            if column.null_count:
                less, equal = pc.fill_null(less, True), pc.fill_null(equal, False)
        else:
            less, equal = pa.repeat(pa.scalar(False), rows), column.is_null()
        below = pc.or_(less, pc.and_(equal, below))
    return int(below.true_count)


def equal_rows(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> NDArray[np.bool_]:
    """Compare row by row; null equals null."""
    same = np.ones(len(left[0]), np.bool_)
    for a, b in zip(left, right, strict=True):
        equal = pc.fill_null(pc.equal(a, b), False)
        if a.null_count and b.null_count:
            equal = pc.or_(equal, pc.and_(a.is_null(), b.is_null()))
        same &= equal.to_numpy(zero_copy_only=False)
    return same


def hashes(keys: Sequence[pa.Array]) -> Hashes:
    """Return 64-bit hashes of keys. They never change: files and the buckets of a table rest on them."""
    total = np.zeros(len(keys[0]), np.uint64)
    for column in keys:
        total = _mix(total * _STEP + _column_hashes(column))
    return total


def _codes(column: pa.Array) -> list[Longs]:
    """Return an array of whole numbers in the column's order, after one of validity when it has nulls."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    if pa.types.is_string(kind) or (pa.types.is_decimal(kind) and kind.precision > _SHORT_DECIMAL_DIGITS):
        return [_ranks(column)]
    values = _longs(column)
    if not column.null_count:
        return [values]
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    return [valid.astype(np.int64), np.where(valid, values, 0)]


def _longs(column: pa.Array) -> Longs:
    """Return integers, dates, timestamps and short decimals as 64-bit integers. Nulls become any value."""
    kind = column.type
    if pa.types.is_decimal(kind):
        if len(column) == 0:
            return np.zeros(0, np.int64)
        words = np.frombuffer(column.buffers()[1], "<i8").reshape(-1, 2)
        return np.ascontiguousarray(words[column.offset : column.offset + len(column), 0])
    if pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    longs = column.cast(pa.int64())
    if longs.null_count:
        longs = longs.fill_null(0)
    return np.asarray(longs.to_numpy(zero_copy_only=False))


def _ranks(column: pa.Array) -> Longs:
    encoded = column.dictionary_encode()
    distinct = encoded.dictionary
    ranks = np.empty(len(distinct) + 1, np.int64)
    ranks[pc.sort_indices(distinct).to_numpy()] = np.arange(1, len(distinct) + 1)
    ranks[-1] = 0  # null
    indices = encoded.indices
    if indices.null_count:
        indices = indices.fill_null(len(distinct))
    value_ranks: Longs = ranks[indices.to_numpy()]
    return value_ranks


def _words(codes: Sequence[Longs]) -> list[Words]:
    """Return as few columns in the same order as 63 bits allow: codes are digits of mixed radix."""
    words: list[Words] = []
    radix = _RANGE_MAX
    for code in codes:
        if not len(code):
            return [np.zeros(0, np.uint64)]
        low, width = int(code.min()), int(code.max()) - int(code.min()) + 1
        # unsigned numbers wrap around, so that the difference is right for every pair of codes
        digit = code.view(np.uint64) - np.uint64(low & _WORD_MAX)
        if radix * width < _RANGE_MAX:
            radix *= width
            words[-1] = words[-1] * np.uint64(width) + digit
        else:
            radix = width
            words.append(digit)
    return words


def _sorted_rows(words: Sequence[Words]) -> Longs | None:
    """Return the places that sort the words stably; None where they are sorted as they are.

    The leading bits of the first word are sorted together with the row's place, as one number. That is
    stable, and much faster than sorting places by what they point to. Rows that agree in these bits are
    sorted once more, by all words.
    """
    if _are_sorted(words):
        return None
    first = words[0]
    place_bits = (len(first) - 1).bit_length()
    shift = max(0, int(first.max()).bit_length() + place_bits - 64)
    packed = first >> np.uint64(shift) << np.uint64(place_bits)
    packed |= np.arange(len(first), dtype=np.uint64)
    packed.sort()
    rows = (packed & np.uint64((1 << place_bits) - 1)).view(np.int64)
    if shift == 0 and len(words) == 1:
        return rows
    packed >>= np.uint64(place_bits)
    agrees = packed[1:] == packed[:-1]
    if agrees.any():
        in_run = np.append(agrees, False)
        in_run[1:] |= agrees
        at = np.flatnonzero(in_run)
        again = rows[at]
        rows[at] = again[np.lexsort([word[again] for word in reversed(words)])]
    return rows


def _are_sorted(words: Sequence[Words]) -> bool:
    equal: NDArray[np.bool_] | None = None
    for word in words:
        falls = word[1:] < word[:-1]
        if bool((falls if equal is None else falls & equal).any()):
            return False
        same = word[1:] == word[:-1]
        equal = same if equal is None else equal & same
    return True


def _comparable(values: pa.Array | pa.Scalar) -> pa.Array | pa.Scalar:
    return values.cast(pa.int8()) if pa.types.is_boolean(values.type) else values


def _column_hashes(column: pa.Array) -> Hashes:
    kind = column.type
    if pa.types.is_string(kind):
        encoded = column.dictionary_encode()
        of_values = np.append(_hash_text(encoded.dictionary), _NULL_HASH)
        indices = encoded.indices
        if indices.null_count:
            indices = indices.fill_null(len(of_values) - 1)
        value_hashes: Hashes = of_values[indices.to_numpy()]
        return value_hashes
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    value_hashes = _mix(_longs(column).view(np.uint64))
    if pa.types.is_decimal(kind) and kind.precision > _SHORT_DECIMAL_DIGITS and len(column):
        words = np.frombuffer(column.buffers()[1], "<u8").reshape(-1, 2)
        value_hashes = _mix(value_hashes + words[column.offset : column.offset + len(column), 1])
    if column.null_count:
        value_hashes = np.where(column.is_valid().to_numpy(zero_copy_only=False), value_hashes, _NULL_HASH)
    return value_hashes


def _hash_text(values: pa.Array) -> Hashes:
    if not len(values):
        return np.zeros(0, np.uint64)
    _, offsets_buffer, data = values.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32, len(values) + 1, values.offset * 4).astype(np.int64)
    bytes_ = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    first, _ = hash_strings(bytes_, offsets[:-1], np.diff(offsets))
    return first


def _mix(x: Hashes) -> Hashes:
    """Return the finalizer of splitmix64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
