"""Key columns as codes: a number for each row, which stands for the row's value.

A column is dictionary-encoded (strings in local tables already are), and a null takes the code after the last
value.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rtolap.columnar.group_ids import Ids

_RUN_ROWS = 8  # of runs that are shorter on average, every value is hashed
_SPARE_VALUES, _VALUES_PER_ROW_MAX = 64, 2  # of a dictionary, beyond which `compact` makes another


class Coded(NamedTuple):
    """A key column as codes `0 .. radix - 1`, and what each code stands for."""

    codes: Ids
    radix: int
    values: pa.Array | None  # None: the caller knows; otherwise code == len(values) is null


def code(column: pa.Array) -> Coded:
    """Return dictionary codes of a column; null is the code after the last."""
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
    """Code a column whose equal values stand together, as those of rolled-up rows do; None for others."""
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


def compact(column: pa.Array) -> pa.Array:
    """Return the same column without a dictionary that is much longer than the column. A caller that unites
    or keeps it would otherwise pay for every value of the table that it came from.
    """
    if not pa.types.is_dictionary(column.type):
        return column
    if len(column.dictionary) <= _SPARE_VALUES + _VALUES_PER_ROW_MAX * len(column):
        return column
    used = pc.unique(column.indices.drop_null())
    places = pc.index_in(column.indices, used)
    return pa.DictionaryArray.from_arrays(places, column.dictionary.take(used)).cast(column.type)
