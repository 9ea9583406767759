"""Smallest and largest values by block, and in which blocks a predicate can hold, all blocks at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rtolap.columnar.filter import mask
from rtolap.model.predicate import And, Compare, In, IsNull, Or, Predicate
from rtolap.model.stored.schema import SchemaColumn
from rtolap.stored.engine.rows.columns import constant, file_column, stored_type

TEXT_BYTES_MAX = 256  # a longer bound would cost more than it spares
_SHORT_DECIMAL_DIGITS = 18  # fit 64 bits
IN_VALUES_MAX = 64  # more are not judged one by one
Blocks = NDArray[np.bool_]


def has_zone(kind: pa.DataType) -> bool:
    return not pa.types.is_binary(kind)


class ZoneRows:
    """The rows of `zones`, one of each block of file columns.

    Rows come in the order of `keys`: the ends of the first key stand at the ends of a block.
    """

    def __init__(self, columns: pa.Schema, keys: Sequence[str]) -> None:
        self._fields = [field for field in columns if has_zone(field.type)]
        self._first_key = keys[0] if keys else None
        self._lows: dict[str, list[pa.Scalar]] = {field.name: [] for field in self._fields}
        self._highs: dict[str, list[pa.Scalar]] = {field.name: [] for field in self._fields}
        self._nulls: dict[str, list[int]] = {field.name: [] for field in self._fields}

    def add_block(self, block: pa.RecordBatch) -> None:
        """Add a block of sorted rows. A column of text may come as a sorted dictionary."""
        for field in self._fields:
            values = block.column(field.name)
            low, high = _ends(values, is_sorted=field.name == self._first_key)
            if pa.types.is_string(field.type) and high.is_valid:
                longest = max(low.as_buffer().size, high.as_buffer().size)
                if longest > TEXT_BYTES_MAX:
                    low = high = pa.scalar(None, field.type)
            self._lows[field.name].append(low)
            self._highs[field.name].append(high)
            self._nulls[field.name].append(values.null_count)

    def table(self) -> pa.Table:
        columns: dict[str, pa.Array] = {}
        for field in self._fields:
            columns[f"{field.name}.min"] = pa.array(self._lows[field.name], field.type)
            columns[f"{field.name}.max"] = pa.array(self._highs[field.name], field.type)
            columns[f"{field.name}.nulls"] = pa.array(self._nulls[field.name], pa.int64())
        return pa.table(columns)


def _ends(values: pa.Array, *, is_sorted: bool) -> tuple[pa.Scalar, pa.Scalar]:
    """Return the smallest and the largest value; nulls where there is none."""
    if pa.types.is_dictionary(values.type):  # a sorted one
        ends = pc.min_max(values.indices)
        if not ends["min"].is_valid:
            return pa.scalar(None, values.type.value_type), pa.scalar(None, values.type.value_type)
        return values.dictionary[ends["min"].as_py()], values.dictionary[ends["max"].as_py()]
    if len(values) and not values.null_count:
        if is_sorted:
            return values[0], values[-1]
        # numpy's extremes of whole columns are several times as fast as Arrow's for these two types
        if pa.types.is_float64(values.type):
            doubles = values.to_numpy()
            least, largest = int(doubles.argmin()), int(doubles.argmax())
            if not np.isnan(doubles[largest]):  # NaN counts as an extreme to numpy, and never to Arrow
                return values[least], values[largest]
        elif pa.types.is_decimal128(values.type) and values.type.precision <= _SHORT_DECIMAL_DIGITS:
            words = np.frombuffer(values.buffers()[1], np.int64, 2 * len(values), 16 * values.offset)[::2]
            return values[int(words.argmin())], values[int(words.argmax())]
    ends = pc.min_max(values)
    return ends["min"], ends["max"]


class Zones:
    """The zones of one file. `rows`: by block."""

    def __init__(self, table: pa.Table, rows: NDArray[np.int64]) -> None:
        self._table = table
        self._rows = rows

    def candidates(self, predicate: Predicate | None, columns: Sequence[SchemaColumn]) -> Blocks:
        """Return False only for blocks in which no row is selected.

        `columns`: those that the predicate can name.
        """
        if predicate is None:
            return np.ones(len(self._rows), np.bool_)
        return self._judge(predicate, {column.name: column for column in columns})

    def _judge(self, predicate: Predicate, columns: dict[str, SchemaColumn]) -> Blocks:
        match predicate:
            case And(terms=terms):
                verdicts = [self._judge(term, columns) for term in terms]
                return np.logical_and.reduce(verdicts) if verdicts else self._all(True)
            case Or(terms=terms):
                verdicts = [self._judge(term, columns) for term in terms]
                return np.logical_or.reduce(verdicts) if verdicts else self._all(False)
            case Compare(column=name, value=value) if self._known(columns, name):
                return self._compare(columns[name], predicate) if value is not None else self._all(False)
            case In(column=name, values=values, negated=False) if (
                self._known(columns, name) and len(values) <= IN_VALUES_MAX
            ):
                each = [self._judge(Compare(name, "eq", value), columns) for value in values]
                return np.logical_or.reduce(each) if each else self._all(False)
            case IsNull(column=name, negated=negated) if self._known(columns, name):
                _, _, nulls = self._bounds(columns[name])
                return nulls < self._rows if negated else nulls > 0
            case _:
                return self._all(True)

    def _known(self, columns: dict[str, SchemaColumn], name: str) -> bool:
        return name in columns and has_zone(stored_type(columns[name]))

    def _compare(self, column: SchemaColumn, predicate: Compare) -> Blocks:
        low, high, nulls = self._bounds(column)
        unknown: Blocks = low.is_null().to_numpy(zero_copy_only=False) & (nulls < self._rows)

        def holds(end: pa.Array, op: str) -> Blocks:
            term = Compare(predicate.column, op, predicate.value)  # type: ignore[arg-type]
            return np.asarray(mask(pa.table({predicate.column: end}), term).to_numpy(zero_copy_only=False))

        match predicate.op:
            case "eq":
                verdict = holds(low, "le") & holds(high, "ge")
            case "ne" if pa.types.is_floating(low.type):  # NaN stands in no range and differs from all
                return self._all(True)
            case "ne":
                verdict = holds(low, "ne") | holds(high, "ne")
            case "lt" | "le":
                verdict = holds(low, predicate.op)
            case "gt" | "ge":
                verdict = holds(high, predicate.op)
        return unknown | verdict

    def _bounds(self, column: SchemaColumn) -> tuple[pa.Array, pa.Array, NDArray[np.int64]]:
        name = file_column(column.id)
        if f"{name}.nulls" not in self._table.column_names:  # the column was added after the file
            values = constant(column, len(self._rows))
            return values, values, self._rows * (values.null_count > 0)
        low, high, nulls = (
            self._table.column(f"{name}.{part}").combine_chunks() for part in ("min", "max", "nulls")
        )
        return low, high, nulls.to_numpy()

    def _all(self, value: bool) -> Blocks:
        return np.full(len(self._rows), value)
