"""Hashes of rows by their keys, equal for equal keys in every table: they divide rows into parts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.columnar.chunks import single_chunk
from rtolap.columnar.hll import as_longs, string_parts
from rtolap.columnar.murmur3 import hash_longs, hash_strings
from rtolap.columnar.sum_bounds import whole_words

_PRIME = np.uint64(0x9E3779B97F4A7C15)  # odd: multiplying by it loses nothing
_OF_NULL = np.uint64(0x5851F42D4C957F2D)


def hash_keys(columns: Sequence[pa.Array | pa.ChunkedArray], rows: int) -> NDArray[np.uint64]:
    """Return 64 bits a row. Doubles that compare equal have equal hashes, and so have all NaN."""
    hashes = np.zeros(rows, np.uint64)
    for column in columns:
        hashes = hashes * _PRIME + _hash(single_chunk(column))
        hashes ^= hashes >> np.uint64(29)
    return hashes


def _hash(column: pa.Array) -> NDArray[np.uint64]:
    hashes = hash_values(column)
    if column.null_count:
        return np.where(column.is_valid().to_numpy(zero_copy_only=False), hashes, _OF_NULL)
    return hashes


def hash_values(column: pa.Array) -> NDArray[np.uint64]:
    """Return hashes of the values; those of nulls are arbitrary."""
    kind = column.type
    if pa.types.is_string(kind):
        encoded = pc.fill_null(column, "").dictionary_encode()
        starts, lengths, data = string_parts(encoded.dictionary)
        of_values = hash_strings(data, starts, lengths)[0]
        hashes: NDArray[np.uint64] = of_values[encoded.indices.to_numpy()]
        return hashes
    if pa.types.is_decimal(kind):
        low, high = (np.ascontiguousarray(words) for words in whole_words(column).T)
        return hash_longs(low)[0] * _PRIME + hash_longs(high)[0]
    return hash_longs(as_longs(column))[0]
