"""Grouping: rows with equal keys get one dense number. The keys become one 64-bit number first.

Each key column is dictionary-encoded (strings in local tables already are), a null takes the code after the
last value, and the codes are combined as digits of mixed radix. Before the product of the radixes
would leave 62 bits, the number so far is itself made dense, so any number of columns works.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rtolap.columnar.schema import LOCAL_STRING

Ids = NDArray[np.int64]
_RADIX_MAX = 1 << 62


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
    """One contiguous array; dictionaries of several chunks are unified."""
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
        column = column.dictionary_encode()
    radix = len(column.dictionary) + 1
    indices = column.indices
    if indices.null_count:
        indices = indices.fill_null(radix - 1)
    return Coded(indices.to_numpy().astype(np.int64), radix, column.dictionary)


def group(keys: Sequence[Coded], rows: int) -> Groups:
    """Dense group numbers, in order of first appearance."""
    if not keys:
        return Groups(np.zeros(rows, np.int64), min(rows, 1), np.zeros(min(rows, 1), np.int64))
    combined, radix = keys[0].codes, keys[0].radix
    for key in keys[1:]:
        if radix > _RADIX_MAX // key.radix:
            combined, radix = _dense(combined)
        combined = combined * key.radix + key.codes
        radix *= key.radix
    ids, count = _dense(combined)
    first = np.zeros(count, np.int64)
    first[ids[::-1]] = np.arange(rows - 1, -1, -1)  # the last write wins, so the earliest row does
    return Groups(ids, count, first)


def keys_of_groups(key: Coded, groups: Groups) -> pa.Array:
    """The key column of one row a group, in local form (strings stay dictionary-encoded)."""
    assert key.values is not None, "a key without values is rebuilt by its owner"
    codes = key.codes[groups.first]
    indices = pa.array(codes.astype(np.int32), mask=codes == key.radix - 1)
    if pa.types.is_string(key.values.type):
        return pa.DictionaryArray.from_arrays(indices, key.values).cast(LOCAL_STRING)
    return key.values.take(indices)


def _dense(combined: Ids) -> tuple[Ids, int]:
    encoded = pa.array(combined).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)
