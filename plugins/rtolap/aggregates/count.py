"""COUNT: of events, or of a column's values that are not null."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rtolap.aggregates.accumulator import Accumulator, Algebra, C, Fold, GroupedColumn, Partial
from rtolap.aggregates.function import LG_K_DEFAULT, Aggregate, Finish
from rtolap.column_types import BIGINT, ColumnType, Kind


class _Number(Accumulator):
    """A number of events; such numbers add up."""

    algebra: ClassVar[Algebra] = "count"
    adds: ClassVar[bool] = True
    arrow_kernel: ClassVar[str | None] = "sum"
    fold: ClassVar[Fold | None] = Fold("add", 0)
    folded_kinds: ClassVar[frozenset[Kind]] = frozenset(("bigint",))

    def result_type(self, source: ColumnType) -> ColumnType:
        return BIGINT

    def merge(self, partials: GroupedColumn[C], kind: ColumnType) -> C:
        return partials.sum(kind)

    def spark_merge(self, column: str, kind: ColumnType) -> str:
        return f"sum({column})"


@dataclass(frozen=True)
class RowCount(_Number):
    """The number of events. Every cube keeps it."""

    name: ClassVar[str] = "rows"

    def begin(self, events: GroupedColumn[C], kind: ColumnType) -> C:
        return events.count_rows()


@dataclass(frozen=True)
class ValueCount(_Number):
    """The number of a column's values that are not null."""

    name: ClassVar[str] = "count"

    def begin(self, events: GroupedColumn[C], kind: ColumnType) -> C:
        return events.count_values()


EVENTS = Partial(RowCount().column_name(None), RowCount(), BIGINT, None)


class Count(Aggregate):
    name: ClassVar[str] = "count"
    title: ClassVar[str] = "COUNT"
    sql_key: ClassVar[str] = "count"
    engine_functions: ClassVar[tuple[str, ...]] = ("count", "count_star", "sum", "coalesce")
    shown: ClassVar[int] = 50
    empty: ClassVar[int | None] = 0
    takes_events: ClassVar[bool] = True
    takes_event_time: ClassVar[bool] = True

    def mismatch(self, column: ColumnType) -> str:
        return ""

    def accumulators(self, lg_k: int = LG_K_DEFAULT) -> tuple[Accumulator, ...]:
        return (ValueCount(),)

    def partials_of_events(self) -> tuple[Partial, ...]:
        return (EVENTS,)

    def read(self, kind: ColumnType | None) -> str:
        return f"CAST(COALESCE(SUM(:count), {self.empty}) AS BIGINT)"

    def finish(self, kind: ColumnType) -> Finish | None:
        return "count"
