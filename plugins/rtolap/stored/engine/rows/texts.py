"""Texts that repeat, as dictionaries on their way to a node, and sorted ones while rows are put in order.

A text in the order of keys is fetched from anywhere in memory, which costs several times as much as a number.
Where few distinct texts repeat, the numbers are put in order instead, and each block gets its texts from a
dictionary that stays in the processor's cache. The dictionary is sorted: the ends of a block are those of its
numbers.

A file of Parquet has such dictionaries already. They go from the body to the tablet's file as they are: texts
are neither sent one by one nor looked up again. No file and no answer has them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rtolap.columnar.chunks import single_chunk

_ROWS_MIN = 32_768  # fewer fit the cache as they are
_SAMPLE_ROWS = 4096
_DISTINCT_MAX = 32_768  # texts of a dictionary that stays in the cache
_REPEATS_MIN = 4  # rows for each distinct text
_SENT_BYTES_MAX = 256  # of a text in a dictionary that is sent: a block of plain rows stays small
SENT_TEXTS = pa.dictionary(pa.int32(), pa.string())
SORTED_TEXTS = pa.dictionary(pa.int32(), pa.string(), ordered=True)


def one_type(columns: Sequence[pa.Array]) -> list[pa.Array]:
    """Return columns of text, of which some have dictionaries, so that all have one or none."""
    coded = [each if each.type == SENT_TEXTS else each.dictionary_encode() for each in columns]
    return coded if all(map(has_short_texts, coded)) else [plain_texts(each) for each in columns]


def with_dictionaries(table: pa.Table) -> pa.Table:
    """Return the table, with texts that repeat as SORTED_TEXTS and all others plain."""
    for place, field in enumerate(table.schema):
        coded: pa.Array | None = None
        if pa.types.is_dictionary(field.type):
            values = single_chunk(table.column(place))
            coded = _sorted(values) if table.num_rows >= _ROWS_MIN else None
            coded = plain_texts(values) if coded is None else coded
        elif pa.types.is_string(field.type) and table.num_rows >= _ROWS_MIN:
            coded = _coded(single_chunk(table.column(place)))
        if coded is not None:
            table = table.set_column(place, field.name, coded)
    return table


def has_short_texts(values: pa.Array) -> bool:
    """Return whether a column is a dictionary of short texts, none of them null."""
    if values.type != SENT_TEXTS or values.dictionary.null_count:
        return False
    return (pc.max(pc.binary_length(values.dictionary)).as_py() or 0) <= _SENT_BYTES_MAX


def saves_work(values: pa.Array) -> bool:
    """Return whether a column is a dictionary of short texts that repeat."""
    return (
        values.type == SENT_TEXTS
        and len(values.dictionary) * _REPEATS_MIN <= len(values)
        and has_short_texts(values)
    )


def in_type(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column in another type. A dictionary has no texts that the column does not need."""
    if values.type == kind and (kind != SENT_TEXTS or saves_work(values)):
        return values
    plain = plain_texts(values)
    return plain.dictionary_encode() if kind == SENT_TEXTS else plain.cast(kind)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema without dictionaries."""
    kinds = [each.type.value_type if pa.types.is_dictionary(each.type) else each.type for each in schema]
    return pa.schema([field.with_type(kind) for field, kind in zip(schema, kinds, strict=True)])


def plain_bytes(table: pa.Table) -> int:
    """Return how many bytes the table is without dictionaries."""
    total = int(table.nbytes)
    for column in table.columns:
        for values in column.chunks if pa.types.is_dictionary(column.type) else ():
            lengths = pc.binary_length(values.dictionary)
            total += pc.sum(lengths.take(values.indices)).as_py() or 0
    return total


def plain_texts(values: pa.Array) -> pa.Array:
    """Return the column without a dictionary."""
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _coded(texts: pa.StringArray) -> pa.DictionaryArray | None:
    sample = texts.slice(len(texts) // 2, _SAMPLE_ROWS)
    repeated = len(sample) - pc.count_distinct(sample, mode="all").as_py()
    # of n texts that are drawn from d equally frequent ones, about n² / 2d have been drawn before
    if repeated * 2 * _DISTINCT_MAX < len(sample) ** 2:
        return None
    return _sorted(texts.dictionary_encode())


def _sorted(encoded: pa.DictionaryArray) -> pa.DictionaryArray | None:
    """Return the column with its dictionary in order; None where it is too large to be worth it."""
    dictionary, indices = encoded.dictionary, encoded.indices
    if len(dictionary) * _REPEATS_MIN > len(encoded):
        return None
    order = pc.sort_indices(dictionary)
    ranks = np.empty(len(dictionary), np.int32)
    ranks[order.to_numpy()] = np.arange(len(dictionary), dtype=np.int32)
    ranked = pa.array(ranks).take(indices)
    return pa.DictionaryArray.from_arrays(ranked, dictionary.take(order), ordered=True)
