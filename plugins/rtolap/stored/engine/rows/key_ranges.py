"""Sorted files cut at common keys, so that they are merged piece by piece in bounded memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rtolap.stored.engine.files.sorted_file import SortedFile
from rtolap.stored.engine.rows.keys import Longs, sort


class KeyRange(NamedTuple):
    """`[starts[i], stops[i])` of file i. No key is in two ranges; `one_key`: it is the same in all rows."""

    starts: Longs
    stops: Longs
    one_key: bool

    @property
    def rows(self) -> int:
        return int((self.stops - self.starts).sum())


def key_ranges(files: Sequence[SortedFile], rows_max: int, *, repeats: bool) -> list[KeyRange]:
    """In order of keys, of about `rows_max` rows and at most a block of every file more.

    `repeats`: a file may have a key many times. Then a range of `one_key` may be longer; its rows are in
    order when the files are taken one after another.
    """
    present = [file for file in files if file.rows]
    ends = np.array([file.rows for file in files], np.int64)
    cuts = [(np.zeros(len(files), np.int64), False)]
    for bound in _bounds(present, rows_max):
        below = np.array([file.rows_below(bound) for file in files], np.int64)
        cuts.append((below, False))
        if not repeats:
            continue
        through = np.array([file.rows_below(bound, inclusive=True) for file in files], np.int64)
        if (through - below).sum() > rows_max:
            cuts[-1] = (below, True)
            cuts.append((through, False))
    cuts.append((ends, False))
    ranges = [KeyRange(starts, stops, one_key) for (starts, one_key), (stops, _) in itertools.pairwise(cuts)]
    return [each for each in ranges if each.rows]


def _bounds(files: Sequence[SortedFile], rows_max: int) -> list[list[pa.Scalar]]:
    """Distinct first keys of blocks, about `rows_max` rows from one to the next."""
    if not files:
        return []
    by_file = [file.sparse_keys() for file in files]
    keys = [pa.concat_arrays(columns) for columns in zip(*by_file, strict=True)]
    order = sort(keys)
    block_rows = files[0].footer.block_rows
    step = max(1, rows_max // block_rows)
    ordered = np.arange(len(keys[0])) if order.rows is None else order.rows
    group = np.searchsorted(order.starts, np.arange(len(ordered)), "right")
    chosen = np.arange(step, len(ordered), step)
    chosen = chosen[np.unique(group[chosen], return_index=True)[1]]
    return [[column[int(row)] for column in keys] for row in ordered[chosen]]
