"""MIN is the smallest value that is not null; null if there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rtolap.aggregates.accumulator import Accumulator, C, Fold, GroupedColumn
from rtolap.aggregates.extremes import INT64_MAX, Extreme, ExtremeAggregate
from rtolap.aggregates.function import LG_K_DEFAULT
from rtolap.column_types import ColumnType


@dataclass(frozen=True)
class Least(Extreme):
    name: ClassVar[str] = "min"
    arrow_kernel: ClassVar[str | None] = "min"
    fold: ClassVar[Fold | None] = Fold("minimum", INT64_MAX)

    def begin(self, events: GroupedColumn[C], kind: ColumnType) -> C:
        return events.least()

    def merge(self, partials: GroupedColumn[C], kind: ColumnType) -> C:
        return partials.least()

    def spark_merge(self, column: str, kind: ColumnType) -> str:
        return f"min({column})"


class Min(ExtremeAggregate):
    name: ClassVar[str] = "min"
    title: ClassVar[str] = "MIN"
    sql_key: ClassVar[str] = "min"
    engine_functions: ClassVar[tuple[str, ...]] = ("min",)
    shown: ClassVar[int] = 30

    def accumulators(self, lg_k: int = LG_K_DEFAULT) -> tuple[Accumulator, ...]:
        return (Least(),)

    def read(self, kind: ColumnType | None) -> str:
        return "MIN(:min)"
