"""Texts that repeat, as sorted dictionaries while rows are put in order.

A text in the order of keys is fetched from anywhere in memory, which costs several times as much as a number.
Where few distinct texts repeat, the numbers are put in order instead, and each block gets its texts from a
dictionary that stays in the processor's cache. The dictionary is sorted: the ends of a block are those of its
numbers.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rtolap.columnar.chunks import single_chunk

_ROWS_MIN = 32_768  # fewer fit the cache as they are
_SAMPLE_ROWS = 4096
_DISTINCT_MAX = 32_768  # texts of a dictionary that stays in the cache
_REPEATS_MIN = 4  # rows for each distinct text
SORTED_TEXTS = pa.dictionary(pa.int32(), pa.string(), ordered=True)


def with_dictionaries(table: pa.Table) -> pa.Table:
    """Return the table, with texts that repeat as SORTED_TEXTS."""
    if table.num_rows < _ROWS_MIN:
        return table
    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            coded = _coded(single_chunk(table.column(place)))
            if coded is not None:
                table = table.set_column(place, field.name, coded)
    return table


def plain_texts(values: pa.Array) -> pa.Array:
    """Return the column without a dictionary."""
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _coded(texts: pa.StringArray) -> pa.DictionaryArray | None:
    sample = texts.slice(len(texts) // 2, _SAMPLE_ROWS)
    repeated = len(sample) - pc.count_distinct(sample, mode="all").as_py()
    # of n texts that are drawn from d equally frequent ones, about n² / 2d have been drawn before
    if repeated * 2 * _DISTINCT_MAX < len(sample) ** 2:
        return None
    encoded = texts.dictionary_encode()
    dictionary, indices = encoded.dictionary, encoded.indices
    if len(dictionary) * _REPEATS_MIN > len(texts):
        return None
    order = pc.sort_indices(dictionary)
    ranks = np.empty(len(dictionary), np.int32)
    ranks[order.to_numpy()] = np.arange(len(dictionary), dtype=np.int32)
    ranked = pa.array(ranks).take(indices)
    return pa.DictionaryArray.from_arrays(ranked, dictionary.take(order), ordered=True)
