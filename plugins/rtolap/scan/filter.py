"""Filtering by codes: a condition is judged once for each value of a dimension.

A condition on one column becomes one truth table. A condition on several columns is judged by the truth of
its parts, with SQL's three-valued logic. Runs of equal values become ranges of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rtolap.columnar.filter import mask
from rtolap.model.predicate import And, Not, Or, Predicate, columns_of, terms_of
from rtolap.scan.columns import CodedColumn, NotCoded, bits, edges
from rtolap.scan.numbers import Codes

_RANGES_MAX = 32  # of one file; more of them are looked at row by row
_COMPARES_MAX = 3  # ranges of numbers that comparing takes less time for than a table of truth

Range = tuple[int, int]
Flags = NDArray[np.bool_]


class Truth:
    """The codes of one column for which a condition is TRUE."""

    def __init__(self, values: pa.Array[Any], name: str, predicate: Predicate) -> None:
        self.table = _flags(values, name, predicate)
        self.matching, self.excluded = bits(self.table), bits(~self.table)
        self.share = float(self.table.mean())
        self._ranges = [(low, behind - 1) for low, behind in edges(self.table).reshape(-1, 2).tolist()]

    def of(self, codes: Codes) -> Flags:
        if len(self._ranges) > _COMPARES_MAX:
            return self.table[codes]
        flags = np.zeros(len(codes), bool)
        for low, high in self._ranges:
            flags |= codes == low if low == high else (codes >= low) & (codes <= high)
        return flags


class Judge:
    """A condition on several columns together, by the truth of its parts over the values of each column.

    `values`: of each column, by code.
    """

    def __init__(self, predicate: Predicate, values: Mapping[str, pa.Array[Any]]) -> None:
        self._predicate = predicate
        self._values = values
        self._flags: dict[Predicate, tuple[Flags, Flags]] = {}
        self.columns = tuple(sorted(columns_of(predicate)))

    def true_rows(self, codes: Mapping[str, Codes]) -> Flags:
        """Return where the condition is TRUE. `codes`: of the rows, by column."""
        return self._judge(self._predicate, codes)[0]

    def _judge(self, predicate: Predicate, columns: Mapping[str, Codes]) -> tuple[Flags, Flags]:
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
        flags = self._flags.get(predicate)
        if flags is None:
            values = self._values[name]
            flags = _flags(values, name, predicate), _flags(values, name, Not(predicate))
            self._flags[predicate] = flags
        return flags[0][columns[name]], flags[1][columns[name]]


def _flags(values: pa.Array[Any], name: str, predicate: Predicate) -> Flags:
    return np.asarray(mask(pa.table([values], [name]), predicate).to_numpy(zero_copy_only=False))


def by_column(predicate: Predicate | None) -> tuple[dict[str, Predicate], Predicate | None]:
    """Return the condition on each column by itself, and the condition on several columns together."""
    terms: dict[str, list[Predicate]] = {}
    rest: list[Predicate] = []
    if predicate is None:
        return {}, None
    for term in terms_of(predicate) if isinstance(predicate, And) else (predicate,):
        columns = columns_of(term)
        if len(columns) == 1:
            (column,) = columns
            terms.setdefault(column, []).append(term)
        else:
            rest.append(term)
    alone = {name: each[0] if len(each) == 1 else And(tuple(each)) for name, each in terms.items()}
    return alone, And(tuple(rest)) if rest else None


def matching_ranges(column: CodedColumn, truth: Truth) -> list[Range] | None:
    """Return the rows whose runs match; None where they are too many ranges."""
    assert column.starts is not None
    flags = truth.of(column.codes)
    runs = edges(flags)
    if len(runs) > 2 * _RANGES_MAX:
        return None
    rows = column.starts[runs].tolist()
    return list(zip(rows[::2], rows[1::2], strict=True))


def ranges_in_both(left: Sequence[Range], right: Sequence[Range]) -> list[Range]:
    """Return the rows that are in both, which are in order."""
    found = [(max(a, c), min(b, d)) for a, b in left for c, d in right if a < d and c < b]
    return sorted(found)
