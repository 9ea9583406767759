"""MAX is the largest value that is not null; null if there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rtolap.aggregates.accumulator import Accumulator, C, Fold, GroupedColumn
from rtolap.aggregates.extremes import INT64_MIN, Extreme, ExtremeAggregate
from rtolap.aggregates.function import LG_K_DEFAULT
from rtolap.column_types import ColumnType


@dataclass(frozen=True)
class Greatest(Extreme):
    name: ClassVar[str] = "max"
    arrow_kernel: ClassVar[str | None] = "max"
    fold: ClassVar[Fold | None] = Fold("maximum", INT64_MIN)

    def begin(self, events: GroupedColumn[C], kind: ColumnType) -> C:
        return events.greatest()

    def merge(self, partials: GroupedColumn[C], kind: ColumnType) -> C:
        return partials.greatest()

    def spark_merge(self, column: str, kind: ColumnType) -> str:
        if kind.kind != "double":
            return f"max({column})"
        # NaN is the largest double to Spark; here it is passed over beside any number.
        return f"coalesce(max(CASE WHEN NOT isnan({column}) THEN {column} END), max({column}))"


class Max(ExtremeAggregate):
    name: ClassVar[str] = "max"
    title: ClassVar[str] = "MAX"
    sql_key: ClassVar[str] = "max"
    engine_functions: ClassVar[tuple[str, ...]] = ("max",)
    shown: ClassVar[int] = 20

    def accumulators(self, lg_k: int = LG_K_DEFAULT) -> tuple[Accumulator, ...]:
        return (Greatest(),)

    def read(self, kind: ColumnType | None) -> str:
        return "MAX(:max)"
