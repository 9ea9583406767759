"""Dense group numbers: rows with equal keys get the same one.

The codes of the keys become one number a row (see `numbers`). Before that number would leave 62 bits, the
number so far is itself made dense, so any number of columns works. Where it addresses a table that is not
much longer than the rows, rows find their group by that address; otherwise by a hash or by sorting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rtolap.columnar.group_ids import Ids
from rtolap.columnar.schema import LOCAL_STRING
from rtolap.scan.keys import Coded, compact
from rtolap.scan.numbers import Numbered, combine

_SLOTS_PER_ROW_MAX = 2  # a longer table of addresses costs more than a hash of every row
_SLOTS_PER_ROW_SORTED_MAX = 8  # a longer one costs more than sorting every row
_SLOTS_MIN = 1 << 12  # so short a table costs nothing, however few the rows are


class Groups(NamedTuple):
    """The groups of rows.

    Attributes:
        ids: the group of each row.
        first: one row of each group.
    """

    ids: Ids
    size: int
    first: Ids


def group(keys: Sequence[Coded], rows: int) -> Groups:
    """Return dense group numbers."""
    if not keys:
        return Groups(np.zeros(rows, np.int64), min(rows, 1), np.zeros(min(rows, 1), np.int64))
    combined, radix = combine(((key.codes, key.radix) for key in keys), rows, _dense)
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
    combined, radix = combine(((key.codes, key.radix) for key in keys), rows, _dense_in_order)
    if radix <= max(_SLOTS_MIN, _SLOTS_PER_ROW_SORTED_MAX * rows):
        return _by_address(combined, radix)
    return _by_sorting(combined)


def _dense(combined: Ids) -> Numbered:
    encoded = pa.array(combined).dictionary_encode()
    return Numbered(encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary))


def _dense_in_order(combined: Ids) -> Numbered:
    dense = _by_sorting(combined)
    return Numbered(dense.ids, dense.size)


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
    """Group numbers in the order of the combined numbers, which are all below `radix`."""
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
