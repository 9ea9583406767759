"""The common part of BIT_AND, BIT_OR and BIT_XOR: whole numbers as 64 bits, in two's complement.

What is answered of no values, and that results are unsigned, is said by SQL's rule for operations on bits.
"""

from __future__ import annotations

from typing import ClassVar

from rtolap.aggregates.accumulator import Accumulator, C, Fold, GroupedColumn
from rtolap.aggregates.function import Aggregate
from rtolap.column_types import BIGINT, ColumnType, Kind


class Bits(Accumulator):
    """The bits so far, as a bigint; null without a value. A subclass says by what they are combined.

    Spark's aggregation has the accumulator's name.
    """

    fold: ClassVar[Fold]
    folded_kinds: ClassVar[frozenset[Kind]] = frozenset(("bigint",))

    def result_type(self, source: ColumnType) -> ColumnType:
        return BIGINT

    def begin(self, events: GroupedColumn[C], kind: ColumnType) -> C:
        return events.fold(self.fold)

    def merge(self, partials: GroupedColumn[C], kind: ColumnType) -> C:
        return partials.fold(self.fold)

    def spark_merge(self, column: str, kind: ColumnType) -> str:
        return f"{self.name}({column})"


class BitAggregate(Aggregate):
    def mismatch(self, column: ColumnType) -> str:
        return "" if column.kind in ("int", "bigint") else "a column of whole numbers"
