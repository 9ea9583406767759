"""Columns in several chunks as one contiguous array."""

from __future__ import annotations

import pyarrow as pa


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
