"""Columns in memory: dimensions as codes of their values, measures in the narrowest type.

All files of a cube share the codes of a dimension, so a condition is judged once for each value, and rows of
many files are grouped by their codes without a look at the values.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.columnar.chunks import single_chunk
from rtolap.columnar.reduce import longs_of_decimals
from rtolap.columnar.sum_bounds import largest_of
from rtolap.scan.numbers import Codes

VALUES_MAX = 1 << 16  # of a dimension, NULL included: numbers take two bytes at most
RUN_ROWS_MIN = 64  # of runs that are shorter on average, every row has its number
_RUN_FILE_ROWS_MIN = 16_384  # smaller files are put together before they are looked at
_NARROW = (np.dtype(np.int8), np.dtype(np.int16), np.dtype(np.int32))


class NotCoded(Exception):
    """Rows that cannot be grouped by codes, because their sums or keys may need more than 64 bits."""


class DimensionCodes:
    """The numbers of one dimension's values. Thread-safe: values are added, and keep their numbers.

    Number 0 is NULL. `values` is replaced when it grows, never changed.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self.values: pa.Array[Any] = pa.nulls(1, kind)
        self._lock = threading.Lock()
        self._is_full = False

    def encode(self, column: pa.Array[Any]) -> Codes | None:
        """Return the number of each row's value; None where there would be more than VALUES_MAX."""
        if self._is_full:
            return None
        if not isinstance(column, pa.DictionaryArray):
            column = column.dictionary_encode()
        places = self._places(column.dictionary)
        if places is None:
            return None
        largest = int(places.max(initial=0))
        numbers = np.append(places, 0).astype(np.uint8 if largest < 1 << 8 else np.uint16)
        indices = column.indices
        if indices.null_count:
            indices = indices.fill_null(len(places))
        codes: Codes = numbers[indices.to_numpy()]
        return codes

    def _places(self, values: pa.Array[Any]) -> NDArray[np.int64] | None:
        with self._lock:
            found = pc.index_in(values, value_set=self.values.slice(1))
            if found.null_count:
                new = values.filter(found.is_null())
                if len(self.values) + len(new) > VALUES_MAX:
                    self._is_full = True
                    return None
                if not pa.types.is_boolean(new.type):  # in order, so that a range of values is one of numbers
                    new = new.take(pc.sort_indices(new))
                self.values = pa.concat_arrays([self.values, new])
                found = pc.index_in(values, value_set=self.values.slice(1))
        return np.asarray(found.to_numpy(), np.int64) + 1


class CodedColumn(NamedTuple):
    """The rows of a dimension in one file.

    Attributes:
        codes: the number of each row's value, or of each run's where there are `starts`.
        present: bit n is set where number n occurs.
        starts: the first row of each run of equal values, and at last `rows`; None where `codes` are of rows.
    """

    dictionary: DimensionCodes
    codes: Codes
    present: int
    starts: NDArray[np.int64] | None
    rows: int

    @property
    def nbytes(self) -> int:
        runs = 0 if self.starts is None else self.starts.nbytes
        return self.codes.nbytes + runs + self.present.bit_length() // 8

    def between(self, first: int, behind: int) -> Codes:
        """Return the numbers of these rows."""
        if self.starts is None:
            return self.codes[first:behind]
        begin = int(self.starts.searchsorted(first, "right")) - 1
        end = int(self.starts.searchsorted(behind, "left"))
        if end == begin + 1:
            return np.full(behind - first, self.codes[begin])
        lengths = self.starts[begin + 1 : end + 1] - self.starts[begin:end]
        lengths[0] = self.starts[begin + 1] - first
        lengths[-1] = behind - self.starts[end - 1]
        return self.codes[begin:end].repeat(lengths)


class MeasureColumn(NamedTuple):
    """The rows of a partial in one file: whole numbers, unscaled decimals, times or doubles.

    Attributes:
        valid: True where there is a value; None where all rows have one.
        largest: a bound of the absolute values.
    """

    values: NDArray[Any]
    valid: NDArray[np.bool_] | None
    largest: int

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + (0 if self.valid is None else self.valid.nbytes)


class CodedFile(NamedTuple):
    """Columns of one file.

    Attributes:
        uncoded: the columns that cannot be stored in this form.
    """

    rows: int
    dimensions: dict[str, CodedColumn]
    measures: dict[str, MeasureColumn]
    uncoded: frozenset[str]

    @property
    def nbytes(self) -> int:
        dimensions = sum(column.nbytes for column in self.dimensions.values())
        return dimensions + sum(column.nbytes for column in self.measures.values())


def coded_column(dictionary: DimensionCodes, column: pa.Array[Any]) -> CodedColumn | None:
    codes = dictionary.encode(column)
    if codes is None:
        return None
    rows, starts = len(codes), None
    if rows >= _RUN_FILE_ROWS_MIN:
        changes = np.flatnonzero(codes[1:] != codes[:-1])
        if len(changes) < rows // RUN_ROWS_MIN:
            starts = np.concatenate(([0], changes + 1, [rows]))
            codes = codes[starts[:-1]]
    found = np.zeros(1 << (8 * codes.dtype.itemsize), bool)
    found[codes] = True
    return CodedColumn(dictionary, codes, bits(found), starts, rows)


def edges(flags: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the first place of each run of set flags, and the place behind its last, in turns."""
    padded = np.zeros(len(flags) + 2, bool)
    padded[1:-1] = flags
    return np.flatnonzero(padded[1:] != padded[:-1])


def bits(flags: NDArray[np.bool_]) -> int:
    """Return a number whose bit n is set where flag n is."""
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


def measure_column(column: pa.Array[Any] | pa.ChunkedArray[Any]) -> MeasureColumn | None:
    """Return the column as 64-bit values; None if they do not fit."""
    column = single_chunk(column)
    valid = column.is_valid().to_numpy(zero_copy_only=False) if column.null_count else None
    kind = column.type
    if pa.types.is_floating(kind):
        return MeasureColumn(np.array(column.fill_null(0.0).to_numpy(), np.float64), valid, 0)
    if pa.types.is_decimal128(kind):
        whole = longs_of_decimals(column)
    elif pa.types.is_integer(kind) or pa.types.is_temporal(kind):
        whole = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    else:
        return None
    if whole is None:
        return None
    values = np.array((whole.fill_null(0) if whole.null_count else whole).to_numpy(), np.int64)
    largest = largest_of(values)
    for narrow in _NARROW:
        if largest <= np.iinfo(narrow).max:
            values = values.astype(narrow)
            break
    return MeasureColumn(values, valid, largest)
