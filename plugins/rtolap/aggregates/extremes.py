"""The common part of MIN and MAX: both keep a value of the column itself."""

from __future__ import annotations

from typing import ClassVar

from rtolap.aggregates.accumulator import Accumulator
from rtolap.aggregates.function import Aggregate, Finish
from rtolap.column_types import ColumnType, Kind

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
_ORDERED: frozenset[Kind] = frozenset(("string", "int", "bigint", "double", "decimal", "date", "timestamp"))


class Extreme(Accumulator):
    """A value of the column, in its own type. Doubles and strings are no numbers of 64 bits."""

    is_idempotent: ClassVar[bool] = True
    folded_kinds: ClassVar[frozenset[Kind]] = frozenset(("int", "bigint", "decimal", "date", "timestamp"))

    def result_type(self, source: ColumnType) -> ColumnType:
        return source


class ExtremeAggregate(Aggregate):
    takes_event_time: ClassVar[bool] = True

    def mismatch(self, column: ColumnType) -> str:
        return "" if column.kind in _ORDERED else "a column with an order"

    def finish(self, kind: ColumnType) -> Finish | None:
        return "value"
