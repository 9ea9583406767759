"""BIT_OR: the bits that any value has, as 64 bits; negative numbers are in two's complement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rtolap.aggregates.accumulator import Accumulator, C, Fold, GroupedColumn
from rtolap.aggregates.function import LG_K_DEFAULT, Aggregate
from rtolap.column_types import BIGINT, ColumnType, Kind

_OR = Fold("bitwise_or", 0)


@dataclass(frozen=True)
class Bits(Accumulator):
    """The bits so far, as a bigint; null without a value, which SQL reads as 0."""

    name: ClassVar[str] = "bit_or"
    fold: ClassVar[Fold | None] = _OR
    folded_kinds: ClassVar[frozenset[Kind]] = frozenset(("bigint",))

    def result_type(self, source: ColumnType) -> ColumnType:
        return BIGINT

    def begin(self, events: GroupedColumn[C], kind: ColumnType) -> C:
        return events.fold(_OR)

    def merge(self, partials: GroupedColumn[C], kind: ColumnType) -> C:
        return partials.fold(_OR)

    def spark_merge(self, column: str, kind: ColumnType) -> str:
        return f"bit_or({column})"


class BitOr(Aggregate):
    name: ClassVar[str] = "bit_or"
    title: ClassVar[str] = "BIT_OR"
    sql_key: ClassVar[str] = "bitwiseoragg"
    engine_functions: ClassVar[tuple[str, ...]] = ("bit_or",)
    shown: ClassVar[int] = 45
    empty: ClassVar[int | None] = 0

    def mismatch(self, column: ColumnType) -> str:
        return "" if column.kind in ("int", "bigint") else "a column of whole numbers"

    def accumulators(self, lg_k: int = LG_K_DEFAULT) -> tuple[Accumulator, ...]:
        return (Bits(),)

    def read(self, kind: ColumnType | None) -> str:
        return "BIT_OR(:bit_or)"  # of no values the rule for operations on bits makes it 0, as MySQL does
