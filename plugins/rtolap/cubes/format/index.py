"""Indexes of columns, which say what a predicate need not read: inverted ones, and ranges.

An inverted index, of a fragment, tells which rows hold which value, as roaring bitmaps. A range is the
smallest and the largest value of a column. Both answer with *supersets*: rows that may match. Conditions
that they cannot judge (an index NOT, LIKE, comparisons by order, columns without an index) count as all rows,
so that the filter afterwards decides alone about NULLs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from rtolap.columnar.bitmaps import words
from rtolap.columnar.filter import mask
from rtolap.columnar.literals import place
from rtolap.model.predicate import And, Compare, In, IsNull, Or, Predicate, Scalar
from rtolap.scan.keys import code

VALUES_MAX = 4096  # distinct values of a dimension; above, an index costs more than it spares

Entry = tuple[Scalar, int, int]  # value, offset in the index, length


class Built(NamedTuple):
    directory: dict[str, list[Entry]]
    data: bytes


def to_scalar(value: object) -> Scalar:
    """Return the predicate scalar for an Arrow value's Python form."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if hasattr(value, "hour"):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f").rjust(26, "0")  # type: ignore[attr-defined, no-any-return]
    return str(value)


def indexable(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_dictionary(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
    )


def build(columns: dict[str, pa.Array]) -> Built:
    directory: dict[str, list[Entry]] = {}
    pieces: list[bytes] = []
    at = 0
    for name, column in columns.items():
        if not indexable(column.type):
            continue
        coded = code(column)
        assert coded.values is not None, "columns carry their values"
        if len(column) == 0:
            directory[name] = []
            continue
        counts = np.bincount(coded.codes, minlength=coded.radix)
        present = np.flatnonzero(counts)
        if len(present) > VALUES_MAX:
            continue
        # Numbers of 16 bits are sorted by counting them, which keeps the rows of each in order.
        codes = coded.codes.astype(np.uint16) if coded.radix <= 1 << 16 else coded.codes
        order = words(np.argsort(codes, kind="stable").astype(np.uint32))
        values = pa.concat_arrays([coded.values, pa.nulls(1, coded.values.type)]).take(pa.array(present))
        entries: list[Entry] = []
        ends = np.cumsum(counts[present])
        for value, start, end in zip(
            values.to_pylist(), (ends - counts[present]).tolist(), ends.tolist(), strict=True
        ):
            bitmap = BitMap(order[start:end])
            bitmap.run_optimize()
            data = bitmap.serialize()
            entries.append((to_scalar(value), at, len(data)))
            pieces.append(data)
            at += len(data)
        directory[name] = entries
    return Built(directory, b"".join(pieces))


class InvertedIndex:
    def __init__(
        self,
        directory: dict[str, list[Entry]],
        types: dict[str, pa.DataType],
        read: Callable[[int, int], bytes],
    ) -> None:
        self._entries = {
            name: {_key(value, types[name]): (offset, length) for value, offset, length in entries}
            for name, entries in directory.items()
        }
        self._types = types
        self._read = read

    def candidates(self, predicate: Predicate) -> BitMap | None:
        """Return rows that may match; None for all."""
        match predicate:
            case Compare(column=name, op="eq", value=value) if name in self._entries:
                return self._rows(name, (value,)) if value is not None else BitMap()
            case In(column=name, values=values, negated=False) if name in self._entries:
                return self._rows(name, values)
            case IsNull(column=name, negated=False) if name in self._entries:
                return self._union([self._entries[name].get(None)])
            case And(terms=terms):
                bitmaps = [rows for rows in map(self.candidates, terms) if rows is not None]
                return BitMap.intersection(*bitmaps) if bitmaps else None
            case Or(terms=terms):
                each = [rows for rows in map(self.candidates, terms) if rows is not None]
                return BitMap.union(*each) if each and len(each) == len(terms) else None
            case _:
                return None

    def _rows(self, name: str, values: tuple[Scalar, ...]) -> BitMap:
        entries, kind = self._entries[name], self._types[name]
        exact = [at.value for at in (place(v, kind) for v in values if v is not None) if at.exact]
        return self._union([entries.get(value) for value in exact])

    def _union(self, bitmaps: list[tuple[int, int] | None]) -> BitMap:
        rows = BitMap()
        for where in bitmaps:
            if where is not None:
                rows |= BitMap.deserialize(self._read(*where))
        return rows


def _key(value: Scalar, kind: pa.DataType) -> object:
    return None if value is None else place(value, kind).value


class ColumnRange(msgspec.Struct, frozen=True):
    """The range of a column's values.

    Attributes:
        min: the smallest non-null value, as a predicate's scalar; None where there is none.
        max: the largest one; None where there is none.
        nulls: number of nulls.
    """

    min: Scalar
    max: Scalar
    nulls: int


def column_range(column: pa.Array) -> ColumnRange:
    nulls = column.null_count
    if pa.types.is_dictionary(column.type):
        used = pc.unique(column.indices.drop_null())
        column = column.dictionary.take(used)
    extremes = pc.min_max(column).as_py()
    return ColumnRange(to_scalar(extremes["min"]), to_scalar(extremes["max"]), nulls)


def can_match(
    ranges: Mapping[str, ColumnRange], types: Mapping[str, pa.DataType], predicate: Predicate | None
) -> bool:
    """Return False only when no row with these ranges can match; columns without a range are never ruled
    out.
    """
    match predicate:
        case And(terms=terms):
            return all(can_match(ranges, types, term) for term in terms)
        case Or(terms=terms):
            return any(can_match(ranges, types, term) for term in terms)
        case Compare(column=name) if name in ranges:
            return _compare(ranges[name], types[name], predicate)
        case In(column=name, values=values, negated=False) if name in ranges:
            return any(_compare(ranges[name], types[name], Compare(name, "eq", value)) for value in values)
        case In(column=name, values=values) if name in ranges and values:
            return all(_compare(ranges[name], types[name], Compare(name, "ne", value)) for value in values)
        case IsNull(column=name, negated=negated) if name in ranges:
            return ranges[name].max is not None if negated else ranges[name].nulls > 0
        case _:
            return True


def _compare(known: ColumnRange, kind: pa.DataType, predicate: Compare) -> bool:
    if known.min is None or predicate.value is None:
        return False
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    ends = pa.table({predicate.column: _typed([known.min, known.max], plain)})
    if predicate.op == "eq":
        at_least = mask(ends, Compare(predicate.column, "le", predicate.value))
        at_most = mask(ends, Compare(predicate.column, "ge", predicate.value))
        return bool(at_least[0].as_py() and at_most[1].as_py())
    if predicate.op == "ne":
        return bool(known.min != known.max or mask(ends, predicate)[0].as_py())
    return bool(pc.any(mask(ends, predicate)).as_py())


def _typed(values: list[Scalar], kind: pa.DataType) -> pa.Array:
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        return pa.array(values, pa.string()).cast(kind)
    return pa.array(values, kind)
