"""SUM: of the values that are not null, exact for whole numbers and decimals; null if there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rtolap.aggregates.accumulator import Accumulator, Algebra, C, Fold, GroupedColumn
from rtolap.aggregates.function import LG_K_DEFAULT, Aggregate, Finish
from rtolap.column_types import BIGINT, ColumnType, Kind, sum_type


@dataclass(frozen=True)
class Total(Accumulator):
    """A sum, in a type by `sum_type`. Beyond 38 digits it is Refused."""

    name: ClassVar[str] = "sum"
    algebra: ClassVar[Algebra] = "sum"
    adds: ClassVar[bool] = True
    arrow_kernel: ClassVar[str | None] = "sum"
    fold: ClassVar[Fold | None] = Fold("add", 0)
    folded_kinds: ClassVar[frozenset[Kind]] = frozenset(("int", "bigint", "decimal", "double"))

    def result_type(self, source: ColumnType) -> ColumnType:
        return sum_type(source)

    def begin(self, events: GroupedColumn[C], kind: ColumnType) -> C:
        return events.sum(kind)

    def merge(self, partials: GroupedColumn[C], kind: ColumnType) -> C:
        return partials.sum(kind)

    def spark_merge(self, column: str, kind: ColumnType) -> str:
        return f"sum({column})"


class Sum(Aggregate):
    name: ClassVar[str] = "sum"
    title: ClassVar[str] = "SUM"
    sql_key: ClassVar[str] = "sum"
    engine_functions: ClassVar[tuple[str, ...]] = ("sum",)
    shown: ClassVar[int] = 10

    def mismatch(self, column: ColumnType) -> str:
        return "" if column.is_numeric else "a numeric column"

    def accumulators(self, lg_k: int = LG_K_DEFAULT) -> tuple[Accumulator, ...]:
        return (Total(),)

    def read(self, kind: ColumnType | None) -> str:
        # A sum of 32-bit values is declared to fit 64 bits: it is cast so, instead of the engine's 128.
        return "CAST(SUM(:sum) AS BIGINT)" if kind == BIGINT else "SUM(:sum)"

    def finish(self, kind: ColumnType) -> Finish | None:
        return "value" if kind == BIGINT else "sum"
