"""AVG is stored as a sum and a count, so that averages of parts merge exactly; null without a value."""

from __future__ import annotations

from typing import ClassVar

from rtolap.aggregates.accumulator import Accumulator
from rtolap.aggregates.count import ValueCount
from rtolap.aggregates.function import LG_K_DEFAULT, Aggregate, Finish
from rtolap.aggregates.sum import Total
from rtolap.column_types import ColumnType


class Avg(Aggregate):
    name: ClassVar[str] = "avg"
    title: ClassVar[str] = "AVG"
    sql_key: ClassVar[str] = "avg"
    engine_functions: ClassVar[tuple[str, ...]] = ("avg", "sum", "nullif")
    shown: ClassVar[int] = 60

    def mismatch(self, column: ColumnType) -> str:
        return "" if column.is_numeric else "a numeric column"

    def accumulators(self, lg_k: int = LG_K_DEFAULT) -> tuple[Accumulator, ...]:
        return (Total(), ValueCount())

    def read(self, kind: ColumnType | None) -> str:
        return "(CAST(SUM(:sum) AS DOUBLE) / NULLIF(SUM(:count), 0))"

    def finish(self, kind: ColumnType) -> Finish | None:
        return "mean"
