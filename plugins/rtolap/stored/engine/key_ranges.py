"""Sorted files cut at common keys, so that they are merged piece by piece in bounded memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rtolap.stored.engine.files.sorted_file import SortedFile
from rtolap.stored.engine.rows.keys import Longs, sort
from rtolap.stored.engine.settings import TabletSettings


class KeyRange(NamedTuple):
    """`[starts[i], stops[i])` of file i. No key is in two ranges; `one_key`: it is the same in all rows."""

    starts: Longs
    stops: Longs
    one_key: bool

    @property
    def rows(self) -> int:
        return int((self.stops - self.starts).sum())


def key_ranges(files: Sequence[SortedFile], rows_max: int, *, repeats: bool) -> list[KeyRange]:
    """Yield ranges in order of keys, of about `rows_max` rows and at most a block of every file more.

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
    """Return distinct first keys of blocks, about `rows_max` rows from one to the next."""
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


def piece_rows(files: Iterable[tuple[SortedFile, Sequence[str]]], settings: TabletSettings) -> int:
    """Return how many rows of these files, each with the columns that are read, to merge at once; never less
    than a block.

    Bounded in rows and in their bytes: Arrow's texts of one array end at 2 GiB, and a row of some kilobytes
    gets there with the usual number of rows.
    """
    widest = max((_row_bytes(file, columns) for file, columns in files), default=1)
    fitting = max(settings.block_rows, settings.memtable_bytes_max // widest)
    return min(settings.merge_rows_max, fitting)


def _row_bytes(file: SortedFile, columns: Sequence[str]) -> int:
    """Return the bytes of a row in memory, by the widest of some blocks: on the disk they may be
    compressed."""
    if not file.rows or not columns:
        return 1
    reader, size = file.reader(columns), file.footer.block_rows
    widest = 1
    for block in sorted({0, file.blocks // 2, file.blocks - 1}):
        table = reader.slice(block * size, (block + 1) * size)
        widest = max(widest, int(table.nbytes) // table.num_rows)
    return widest
