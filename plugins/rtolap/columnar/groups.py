"""Grouping: rows with equal keys get one dense number. The keys become one 64-bit number first.

Each key column is dictionary-encoded (strings in local tables already are), a null takes the code after the
last value, and the codes are combined as digits of mixed radix. Before the product of the radixes
would leave 62 bits, the number so far is itself made dense, so any number of columns works.

Where the combined number addresses a table that is not much longer than the rows, rows find their group by
that address; otherwise by a hash of the number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.columnar.schema import LOCAL_STRING

Ids = NDArray[np.int64]
_RADIX_MAX = 1 << 62
_SLOTS_PER_ROW_MAX = 2  # a longer table of addresses costs more than a hash of every row
_SLOTS_PER_ROW_SORTED_MAX = 8  # a longer one costs more than sorting every row
_RUN_ROWS = 8  # of runs that are shorter on average, every value is hashed
_SPARE_VALUES, _VALUES_PER_ROW_MAX = 64, 2  # of a dictionary, beyond which `compact` makes another
_SLOTS_MIN = 1 << 12  # so short a table costs nothing, however few the rows are


class Coded(NamedTuple):
    """A key column as codes `0 .. radix - 1`, and what each code stands for."""

    codes: Ids
    radix: int
    values: pa.Array | None  # None: the caller knows; otherwise code == len(values) is null


class Groups(NamedTuple):
    """`ids[row]` is the row's group; `first[group]` is one row of it."""

    ids: Ids
    size: int
    first: Ids


def single_chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return one contiguous array; dictionaries of several chunks are unified."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    if column.num_chunks == 0:
        return pa.array([], column.type)
    if pa.types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    return pa.concat_arrays(column.chunks)


def code(column: pa.Array) -> Coded:
    """Dictionary codes of a column; null is the code after the last."""
    if not pa.types.is_dictionary(column.type):
        in_runs = _code_of_runs(column)
        if in_runs is not None:
            return in_runs
        column = column.dictionary_encode()
    radix = len(column.dictionary) + 1
    indices = column.indices
    if indices.null_count:
        indices = indices.fill_null(radix - 1)
    return Coded(indices.to_numpy().astype(np.int64), radix, column.dictionary)


def _code_of_runs(column: pa.Array) -> Coded | None:
    """Code a column whose equal values stand together, as times of rolled-up rows do; None for others."""
    kind = column.type
    if column.null_count or len(column) < _RUN_ROWS or not (_is_whole(kind) or pa.types.is_temporal(kind)):
        return None
    numbers = column.view(pa.int32() if kind.bit_width == 32 else pa.int64()).to_numpy()
    starts = np.concatenate(([0], np.flatnonzero(numbers[1:] != numbers[:-1]) + 1))
    if len(starts) > len(numbers) // _RUN_ROWS:
        return None
    encoded = column.take(pa.array(starts)).dictionary_encode()
    lengths = np.diff(starts, append=len(numbers))
    codes = np.repeat(encoded.indices.to_numpy().astype(np.int64), lengths)
    return Coded(codes, len(encoded.dictionary) + 1, encoded.dictionary)


def _is_whole(kind: pa.DataType) -> bool:
    return bool(pa.types.is_int32(kind) or pa.types.is_int64(kind))


def group(keys: Sequence[Coded], rows: int) -> Groups:
    """Return dense group numbers."""
    if not keys:
        return Groups(np.zeros(rows, np.int64), min(rows, 1), np.zeros(min(rows, 1), np.int64))
    combined, radix = keys[0].codes, keys[0].radix
    for key in keys[1:]:
        if radix > _RADIX_MAX // key.radix:
            combined, radix = _dense(combined)
        combined = combined * key.radix + key.codes
        radix *= key.radix
    if radix <= max(_SLOTS_MIN, _SLOTS_PER_ROW_MAX * rows):
        return _by_address(combined, radix)
    ids, count = _dense(combined)
    first = np.zeros(count, np.int64)
    first[ids[::-1]] = np.arange(rows - 1, -1, -1)
    return Groups(ids, count, first)


def group_in_order(keys: Sequence[Coded], rows: int) -> Groups:
    """Return dense group numbers that ascend with the keys' codes, the first key before the others."""
    if not keys:
        return group(keys, rows)
    combined, radix = keys[0].codes, keys[0].radix
    for key in keys[1:]:
        if radix > _RADIX_MAX // key.radix:
            dense = _by_sorting(combined)
            combined, radix = dense.ids, dense.size
        combined = combined * key.radix + key.codes
        radix *= key.radix
    if radix <= max(_SLOTS_MIN, _SLOTS_PER_ROW_SORTED_MAX * rows):
        return _by_address(combined, radix)
    return _by_sorting(combined)


def _by_sorting(combined: Ids) -> Groups:
    order = np.argsort(combined)
    ordered = combined[order]
    begins = np.ones(len(order), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=begins[1:])
    ids = np.empty(len(order), np.int64)
    ids[order] = np.cumsum(begins) - 1
    first = order[begins]
    return Groups(ids, len(first), first)


def _by_address(combined: Ids, radix: int) -> Groups:
    """Group numbers in the order of the combined numbers, all of which are below `radix`."""
    row_at = np.full(radix, -1, np.int64)
    row_at[combined] = np.arange(len(combined))
    present = np.flatnonzero(row_at >= 0)
    first = row_at[present]
    if len(present) == 0 or present[-1] == len(present) - 1:  # none is missing before the last: dense already
        return Groups(combined, len(present), first)
    row_at[present] = np.arange(len(present))
    return Groups(row_at[combined], len(present), first)


def keys_of_groups(key: Coded, groups: Groups) -> pa.Array:
    """Return the key column of one row a group, in local form (strings stay dictionary-encoded)."""
    assert key.values is not None, "a key without values is rebuilt by its owner"
    codes = key.codes[groups.first]
    indices = pa.array(codes.astype(np.int32), mask=codes == key.radix - 1)
    if pa.types.is_string(key.values.type):
        return compact(pa.DictionaryArray.from_arrays(indices, key.values).cast(LOCAL_STRING))
    return key.values.take(indices)


def compact(column: pa.Array) -> pa.Array:
    """Return the same column without a dictionary that is much longer than itself: whoever unites it with
    others, or keeps it, would pay for every value of the table that it came from.
    """
    if not pa.types.is_dictionary(column.type):
        return column
    if len(column.dictionary) <= _SPARE_VALUES + _VALUES_PER_ROW_MAX * len(column):
        return column
    used = pc.unique(column.indices.drop_null())
    places = pc.index_in(column.indices, used)
    return pa.DictionaryArray.from_arrays(places, column.dictionary.take(used)).cast(column.type)


def _dense(combined: Ids) -> tuple[Ids, int]:
    encoded = pa.array(combined).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)
