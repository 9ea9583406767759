"""Filtering and grouping the rows of many files by the numbers of their dimensions' values.

A condition on one dimension is judged once for each of its values. Files that hold no value that it keeps
are left out, runs of values in files that are ordered by them become ranges of rows, and what is left is
put together to blocks of rows that stay in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rtolap.columnar.filter import mask
from rtolap.columnar.schema import select_partials
from rtolap.model.predicate import And, Not, Or, Predicate, columns_of
from rtolap.query.cubes.history_codes import (
    CodedColumn,
    CodedFile,
    Codes,
    DimensionCodes,
    MeasureColumn,
    bits,
    edges,
)
from rtolap.query.cubes.history_groups import CodedGroups, Ids, NotCoded
from rtolap.query.plan import CubeRead
from rtolap.scan.numbers import combine, fits, take_apart

BLOCK_ROWS = 65_536
_RANGES_MAX = 32  # of one file; more of them are looked at row by row
_COMPARES_MAX = 3  # ranges of numbers that comparing takes less time for than a table of truth

Range = tuple[int, int]


class Truth:
    """The verdict of a condition on one dimension, for each number of it."""

    def __init__(self, values: pa.Array[Any], name: str, predicate: Predicate) -> None:
        self.table = _flags(values, name, predicate)
        self.kept, self.dropped = bits(self.table), bits(~self.table)
        self.share = float(self.table.mean())
        self._ranges = [(low, behind - 1) for low, behind in edges(self.table).reshape(-1, 2).tolist()]

    def of(self, codes: Codes) -> NDArray[np.bool_]:
        if len(self._ranges) > _COMPARES_MAX:
            return self.table[codes]
        kept = np.zeros(len(codes), bool)
        for low, high in self._ranges:
            kept |= codes == low if low == high else (codes >= low) & (codes <= high)
        return kept


class _Piece(NamedTuple):
    file: CodedFile
    first: int
    behind: int


class _Block(NamedTuple):
    """Rows of files whose filter has to look at the same dimensions."""

    pieces: list[_Piece]
    rows: list[int]


class GroupScan:
    """A read over files. `dictionaries` number the dimensions as they are when the read begins.

    Everything that adds rows raises NotCoded where the result might leave its type.
    """

    def __init__(self, read: CubeRead, dictionaries: Mapping[str, DimensionCodes]) -> None:
        self._read = read
        self._partials = select_partials(read.schema, read.partials)
        self._dictionaries = dictionaries
        self._values = {name: dictionary.values for name, dictionary in dictionaries.items()}
        terms, self._rest = _by_column(read.filter)
        self._truths = {name: Truth(self._values[name], name, term) for name, term in terms.items()}
        self._rest_columns = tuple(sorted(columns_of(self._rest)))
        self._rest_flags: dict[Predicate, tuple[NDArray[np.bool_], NDArray[np.bool_]]] = {}
        self._radices = [len(self._values[name]) for name in read.dimensions]
        self._blocks: dict[tuple[str, ...], _Block] = {}
        if not fits(self._radices):
            raise NotCoded
        self._groups = CodedGroups(self._partials, prod(self._radices))

    @property
    def is_current(self) -> bool:
        """Return False if values were added since: files may have numbers that this does not know."""
        return all(len(self._dictionaries[name].values) == len(self._values[name]) for name in self._values)

    def add_file(self, file: CodedFile) -> int:
        """Add a file's rows. Return the number of those that there are to look at."""
        needed: list[str] = []
        ranges: list[Range] | None = None
        for name, truth in self._truths.items():
            column = file.dimensions[name]
            if not column.present & truth.kept:
                return 0
            if not column.present & truth.dropped:
                continue
            found = None if column.starts is None else _ranges(column, truth)
            if found is None:
                needed.append(name)
            else:
                ranges = found if ranges is None else _both(ranges, found)
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
        codes = zip(self._read.dimensions, take_apart(numbers, self._radices), strict=True)
        arrays: dict[str, Any] = {name: self._values[name].take(pa.array(each)) for name, each in codes}
        schema = self._read.columns
        return pa.table([{**arrays, **columns}[name] for name in schema.names], schema)

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
        if self._rest is not None:
            columns = {name: _codes(pieces, name) for name in self._rest_columns}
            if keep is not None:
                columns = {name: codes[keep] for name, codes in columns.items()}
            kept, _ = self._judge(self._rest, columns)
            keep = np.flatnonzero(kept) if keep is None else keep[kept]
        count = rows if keep is None else len(keep)
        if not count:
            return
        digits = (
            (_codes(pieces, name) if keep is None else _codes(pieces, name)[keep], radix)
            for name, radix in zip(self._read.dimensions, self._radices, strict=True)
        )
        numbers = combine(digits, count).numbers
        self._groups.add_rows(numbers, [_measures(pieces, partial.name, keep) for partial in self._partials])

    def _judge(
        self, predicate: Predicate, columns: Mapping[str, Codes]
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return where it is TRUE, and where it is FALSE."""
        match predicate:
            case And(terms=terms) | Or(terms=terms) if terms:
                trues, falses = zip(*(self._judge(term, columns) for term in terms), strict=True)
                if isinstance(predicate, And):
                    return np.logical_and.reduce(trues), np.logical_or.reduce(falses)
                return np.logical_or.reduce(trues), np.logical_and.reduce(falses)
            case Not(term=term):
                true, false = self._judge(term, columns)
                return false, true
        names = columns_of(predicate)
        if not names:  # AND and OR of nothing: nobody writes them
            raise NotCoded
        (name,) = names
        flags = self._rest_flags.get(predicate)
        if flags is None:
            values = self._values[name]
            flags = _flags(values, name, predicate), _flags(values, name, Not(predicate))
            self._rest_flags[predicate] = flags
        return flags[0][columns[name]], flags[1][columns[name]]


def _flags(values: pa.Array[Any], name: str, predicate: Predicate) -> NDArray[np.bool_]:
    return np.asarray(mask(pa.table([values], [name]), predicate).to_numpy(zero_copy_only=False))


def _by_column(predicate: Predicate | None) -> tuple[dict[str, Predicate], Predicate | None]:
    """Return what must hold of each column by itself, and what is said of several together."""
    terms: dict[str, list[Predicate]] = {}
    rest: list[Predicate] = []
    for term in _conjuncts(predicate):
        columns = columns_of(term)
        if len(columns) == 1:
            (column,) = columns
            terms.setdefault(column, []).append(term)
        else:
            rest.append(term)
    alone = {name: each[0] if len(each) == 1 else And(tuple(each)) for name, each in terms.items()}
    return alone, And(tuple(rest)) if rest else None


def _conjuncts(predicate: Predicate | None) -> Iterable[Predicate]:
    match predicate:
        case None:
            return
        case And(terms=terms):
            for term in terms:
                yield from _conjuncts(term)
        case _:
            yield predicate


def _ranges(column: CodedColumn, truth: Truth) -> list[Range] | None:
    """Return the rows whose run is kept; None where they are too many ranges."""
    assert column.starts is not None
    kept = truth.of(column.codes)
    runs = edges(kept)
    if len(runs) > 2 * _RANGES_MAX:
        return None
    rows = column.starts[runs].tolist()
    return list(zip(rows[::2], rows[1::2], strict=True))


def _both(left: Sequence[Range], right: Sequence[Range]) -> list[Range]:
    """Return the rows that are in both, which are in order."""
    found = [(max(a, c), min(b, d)) for a, b in left for c, d in right if a < d and c < b]
    return sorted(found)


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
