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
IN_VALUES_MAX = 64  # more are not judged one by one
Blocks = NDArray[np.bool_]


def has_zone(kind: pa.DataType) -> bool:
    return not pa.types.is_binary(kind)


def zone_row(block: pa.Table) -> dict[str, pa.Array]:
    """Return the one row of `zones` for a block of file columns."""
    row: dict[str, pa.Array] = {}
    for field in block.schema:
        if not has_zone(field.type):
            continue
        values = block.column(field.name)
        ends = pc.min_max(values)
        low, high = ends["min"], ends["max"]
        if pa.types.is_string(field.type) and high.is_valid:
            longest = max(low.as_buffer().size, high.as_buffer().size)
            if longest > TEXT_BYTES_MAX:
                low = high = pa.scalar(None, field.type)
        row[f"{field.name}.min"] = pa.array([low], field.type)
        row[f"{field.name}.max"] = pa.array([high], field.type)
        row[f"{field.name}.nulls"] = pa.array([values.null_count], pa.int64())
    return row


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
