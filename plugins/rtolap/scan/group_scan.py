"""Rows of many files, filtered and grouped by codes.

Files that hold no value that the filter keeps are left out. Runs of values become ranges of rows. The
rest is put together to blocks of rows that stay in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rtolap.aggregates.accumulator import Partial
from rtolap.columnar.group_ids import Ids
from rtolap.model.predicate import Predicate
from rtolap.scan.columns import CodedFile, DimensionCodes, MeasureColumn, NotCoded
from rtolap.scan.filter import Judge, Range, Truth, by_column, matching_ranges, ranges_in_both
from rtolap.scan.folds import CodedGroups
from rtolap.scan.numbers import Codes, combine, fits, take_apart

BLOCK_ROWS = 65_536


class _Piece(NamedTuple):
    file: CodedFile
    first: int
    behind: int


class _Block(NamedTuple):
    """Rows of files whose filter has to look at the same dimensions."""

    pieces: list[_Piece]
    rows: list[int]


class GroupScan:
    """Groups of the rows of files that a predicate keeps. Everything that adds rows raises NotCoded."""

    def __init__(
        self,
        dimensions: Sequence[str],
        partials: Sequence[Partial],
        predicate: Predicate | None,
        dictionaries: Mapping[str, DimensionCodes],
    ) -> None:
        """Take the columns. `dictionaries` are those of all columns by which rows are grouped or filtered;
        codes that come later are unknown.

        Raises NotCoded where the groups may need more than 64 bits.
        """
        self._dimensions = dimensions
        self._partials = partials
        self._dictionaries = dictionaries
        self._values = {name: dictionary.values for name, dictionary in dictionaries.items()}
        terms, rest = by_column(predicate)
        self._truths = {name: Truth(self._values[name], name, term) for name, term in terms.items()}
        self._judge = None if rest is None else Judge(rest, self._values)
        self._radices = [len(self._values[name]) for name in dimensions]
        self._blocks: dict[tuple[str, ...], _Block] = {}
        if not fits(self._radices):
            raise NotCoded
        self._groups = CodedGroups(self._partials, prod(self._radices))

    @property
    def is_current(self) -> bool:
        """Return False if values were added since: files may have numbers that this does not know."""
        return all(len(self._dictionaries[name].values) == len(self._values[name]) for name in self._values)

    @property
    def size_bytes(self) -> int:
        """Return what the groups so far take, and the rows that wait to be added to them."""
        return self._groups.size_bytes

    def add_file(self, file: CodedFile) -> int:
        """Add a file's rows. Return the number of those that there are to look at."""
        needed: list[str] = []
        ranges: list[Range] | None = None
        for name, truth in self._truths.items():
            column = file.dimensions[name]
            if not column.present & truth.matching:
                return 0
            if not column.present & truth.excluded:
                continue
            found = None if column.starts is None else matching_ranges(column, truth)
            if found is None:
                needed.append(name)
            else:
                ranges = found if ranges is None else ranges_in_both(ranges, found)
        key = tuple(sorted(needed, key=lambda name: self._truths[name].share))
        block = self._blocks.setdefault(key, _Block([], [0]))
        looked = 0
        for first, behind in ((0, file.rows),) if ranges is None else ranges:
            looked += behind - first
            for start in range(first, behind, BLOCK_ROWS):
                stop = min(behind, start + BLOCK_ROWS)
                block.pieces.append(_Piece(file, start, stop))
                block.rows[0] += stop - start
                if block.rows[0] >= BLOCK_ROWS:
                    self._flush(key, block)
        return looked

    def table(self) -> pa.Table:
        """Return the groups of all rows that were added, each once, in plain form."""
        for key, block in self._blocks.items():
            self._flush(key, block)
        numbers, columns = self._groups.result()
        codes = zip(self._dimensions, take_apart(numbers, self._radices), strict=True)
        arrays: dict[str, Any] = {name: self._values[name].take(pa.array(each)) for name, each in codes}
        return pa.table(arrays | columns)

    def _flush(self, needed: Sequence[str], block: _Block) -> None:
        if not block.rows[0]:
            return
        pieces = block.pieces.copy()
        rows, keep = block.rows[0], None
        block.pieces.clear()
        block.rows[0] = 0
        for name in needed:
            codes = _codes(pieces, name)
            if keep is None:
                keep = np.flatnonzero(self._truths[name].of(codes))
            else:
                keep = keep[self._truths[name].of(codes[keep])]
        if self._judge is not None:
            columns = {name: _codes(pieces, name) for name in self._judge.columns}
            if keep is not None:
                columns = {name: codes[keep] for name, codes in columns.items()}
            flags = self._judge.true_rows(columns)
            keep = np.flatnonzero(flags) if keep is None else keep[flags]
        count = rows if keep is None else len(keep)
        if not count:
            return
        digits = (
            (_codes(pieces, name) if keep is None else _codes(pieces, name)[keep], radix)
            for name, radix in zip(self._dimensions, self._radices, strict=True)
        )
        numbers = combine(digits, count).numbers
        self._groups.add_rows(numbers, [_measures(pieces, partial.name, keep) for partial in self._partials])


def _codes(pieces: Sequence[_Piece], name: str) -> Codes:
    parts = [file.dimensions[name].between(first, behind) for file, first, behind in pieces]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _measures(pieces: Sequence[_Piece], name: str, keep: Ids | None) -> MeasureColumn:
    columns = [piece.file.measures[name] for piece in pieces]
    parts = [column.values[piece.first : piece.behind] for column, piece in zip(columns, pieces, strict=True)]
    values = parts[0] if len(parts) == 1 else np.concatenate(parts)
    valid = None
    if any(column.valid is not None for column in columns):
        valid = np.concatenate(
            [
                np.ones(piece.behind - piece.first, bool)
                if column.valid is None
                else column.valid[piece.first : piece.behind]
                for column, piece in zip(columns, pieces, strict=True)
            ]
        )
    largest = max(column.largest for column in columns)
    if keep is None:
        return MeasureColumn(values, valid, largest)
    return MeasureColumn(values[keep], None if valid is None else valid[keep], largest)
