"""Partials folded by the number of their group, which takes more rows later: by address or by hash."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rtolap.aggregates.accumulator import Fold, Partial
from rtolap.columnar.group_ids import Ids, fold_at
from rtolap.columnar.reduce import decimals_of_words
from rtolap.columnar.schema import arrow_type
from rtolap.columnar.sum_bounds import INT64_MAX, SumBound
from rtolap.scan.columns import MeasureColumn, NotCoded

SLOTS_MAX = 1 << 16  # of groups that are addressed by their number; of more, those that occur are hashed
HASHED_ROWS = 1 << 18  # that wait until they are hashed
_NUMBER_BYTES = 8


def is_exact_fold(partial: Partial) -> bool:
    """Return True if its values are folded to the same value in any order."""
    return partial.type.kind != "double" and partial.type.kind in partial.accumulator.folded_kinds


class CodedGroups:
    """Partials by group number, merged as their accumulators fold them.

    `radix`: how many numbers there may be. `add_rows` raises NotCoded where a sum might leave its type.
    """

    def __init__(self, partials: Sequence[Partial], radix: int) -> None:
        self._partials = partials
        self._operations = [getattr(np, _fold(partial).ufunc) for partial in partials]
        self._is_dense = radix <= SLOTS_MAX
        self._numbers = np.arange(radix if self._is_dense else 0)
        self._totals = [_neutral(partial, len(self._numbers)) for partial in partials]
        self._seen = np.zeros(len(self._numbers), bool)
        self._valued: list[NDArray[np.bool_] | None] = [None] * len(partials)
        self._bounds = [SumBound(INT64_MAX) for _ in partials]
        self._waiting: list[tuple[Ids, list[MeasureColumn]]] = []
        self._waiting_rows = 0

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all groups, and of the rows that wait until they are hashed."""
        rows = 0 if self._is_dense else len(self._numbers) + self._waiting_rows
        return rows * _NUMBER_BYTES * (1 + len(self._partials))

    def add_rows(self, numbers: Ids, measures: list[MeasureColumn]) -> None:
        for place, (partial, measure) in enumerate(zip(self._partials, measures, strict=True)):
            fits = self._bounds[place].add_numbers(measure.largest, len(numbers))
            if partial.accumulator.adds and not fits:
                raise NotCoded
        if self._is_dense:
            self._reduce(numbers, measures)
            return
        self._waiting.append((numbers, measures))
        self._waiting_rows += len(numbers)
        if self._waiting_rows >= max(HASHED_ROWS, len(self._numbers)):
            self._hash()

    def result(self) -> tuple[Ids, dict[str, pa.Array[Any]]]:
        """Return the groups that occur, and the columns of their partials."""
        self._hash()
        occurs = np.flatnonzero(self._seen)
        columns = {}
        for partial, totals, valued in zip(self._partials, self._totals, self._valued, strict=True):
            absent = None if valued is None or valued[occurs].all() else ~valued[occurs]
            columns[partial.name] = _typed(totals[occurs], partial, absent)
        return self._numbers[occurs], columns

    def _hash(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting, self._waiting_rows = self._waiting, [], 0
        before = len(self._numbers)
        encoded = pa.array(
            np.concatenate([self._numbers, *(numbers for numbers, _ in waiting)])
        ).dictionary_encode()
        self._numbers = encoded.dictionary.to_numpy()
        new = len(self._numbers) - before
        self._totals = [
            np.concatenate([totals, _neutral(partial, new)])
            for partial, totals in zip(self._partials, self._totals, strict=True)
        ]
        self._seen = np.concatenate([self._seen, np.zeros(new, bool)])
        self._valued = [
            None if valued is None else np.concatenate([valued, np.zeros(new, bool)])
            for valued in self._valued
        ]
        ids, first = encoded.indices.to_numpy().astype(np.int64), before
        for numbers, measures in waiting:
            self._reduce(ids[first : first + len(numbers)], measures)
            first += len(numbers)

    def _reduce(self, ids: Ids, measures: Sequence[MeasureColumn]) -> None:
        for place, measure in enumerate(measures):
            valued, of_measure, values = self._valued[place], ids, measure.values
            if measure.valid is not None:
                of_measure, values = ids[measure.valid], values[measure.valid]
                if valued is None:  # until now every row had a value
                    valued = self._valued[place] = self._seen.copy()
            if valued is not None:
                valued[of_measure] = True
            totals = self._totals[place]
            fold_at(self._operations[place], totals, of_measure, values.astype(totals.dtype))
        self._seen[ids] = True


def _fold(partial: Partial) -> Fold:
    fold = partial.accumulator.fold
    assert fold is not None, "partials without a fold are not coded"
    return fold


def _neutral(partial: Partial, groups: int) -> NDArray[Any]:
    kind = np.float64 if partial.type.kind == "double" else np.int64
    return np.full(groups, _fold(partial).neutral, kind)


def _typed(totals: NDArray[Any], partial: Partial, absent: NDArray[np.bool_] | None) -> pa.Array[Any]:
    match partial.type.kind:
        case "double":
            return pa.array(totals, pa.float64(), mask=absent)
        case "decimal":
            low, high = totals.view(np.uint64), (totals >> 63).view(np.uint64)
            return decimals_of_words(low, high, arrow_type(partial.type), absent)
        case "date":
            return pa.array(totals.astype(np.int32), pa.int32(), mask=absent).view(pa.date32())
        case "timestamp":
            return pa.array(totals, pa.int64(), mask=absent).view(pa.timestamp("us"))
        case "int":
            return pa.array(totals.astype(np.int32), pa.int32(), mask=absent)
    return pa.array(totals, pa.int64(), mask=absent)
