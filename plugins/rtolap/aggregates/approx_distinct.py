"""COUNT(DISTINCT): an estimate out of HLL sketches, the same however the values are divided among them."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

from rtolap.aggregates.accumulator import Accumulator, C, Coupons, GivenForm, GroupedColumn
from rtolap.aggregates.function import LG_K_DEFAULT, Aggregate, Finish
from rtolap.column_types import BINARY, ColumnType, Kind

_COUNTABLE: frozenset[Kind] = frozenset(
    ("string", "int", "bigint", "decimal", "date", "timestamp", "boolean")
)


@dataclass(frozen=True)
class Sketch(Accumulator):
    """A compact DataSketches HLL_8 sketch of 2^lg_k registers; a list of coupons while in a receiver."""

    is_idempotent: ClassVar[bool] = True
    name: ClassVar[str] = "hll"
    takes_dimensions: ClassVar[bool] = False
    lg_k: int

    @property
    def local_form(self) -> Coupons | None:
        return Coupons(self.lg_k)

    @property
    def sketch_bytes(self) -> int:
        return 1 << self.lg_k

    @property
    def relative_error(self) -> float:
        return 1.04 / sqrt(1 << self.lg_k)

    def result_type(self, source: ColumnType) -> ColumnType:
        return BINARY

    def begin(self, events: GroupedColumn[C], kind: ColumnType) -> C:
        return events.hash_values(self.lg_k)

    def merge(self, partials: GroupedColumn[C], kind: ColumnType) -> C:
        return partials.unite_sketches()

    def merge_local(self, partials: GroupedColumn[C], kind: ColumnType) -> C:
        return partials.unite_coupons(self.lg_k)

    def spark_merge(self, column: str, kind: ColumnType) -> str:
        # Out of nulls alone Spark would make an empty sketch of a default size.
        return f"CASE WHEN count({column}) > 0 THEN hll_union_agg({column}) END"


@dataclass(frozen=True)
class GivenSketch(Sketch):
    """The union of sketches that events bring along: bytes in a receiver too."""

    @property
    def local_form(self) -> None:
        return None

    @property
    def given_form(self) -> GivenForm:
        return GivenForm("hll", self.lg_k)

    def begin(self, events: GroupedColumn[C], kind: ColumnType) -> C:
        return events.unite_sketches()

    def merge_local(self, partials: GroupedColumn[C], kind: ColumnType) -> C:
        return partials.unite_sketches()


class ApproxDistinct(Aggregate):
    name: ClassVar[str] = "approx_distinct"
    title: ClassVar[str] = "APPROX_COUNT_DISTINCT"
    sql_key: ClassVar[str] = "approxdistinct"
    engine_functions: ClassVar[tuple[str, ...]] = ("approx_count_distinct", "hll_estimate", "list")
    shown: ClassVar[int] = 40
    empty: ClassVar[int | None] = 0
    takes_lg_k: ClassVar[bool] = True
    takes_sketches: ClassVar[bool] = True

    def mismatch(self, column: ColumnType) -> str:
        return "" if column.kind in _COUNTABLE else "a column whose values compare exactly"

    def accumulators(self, lg_k: int = LG_K_DEFAULT) -> tuple[Accumulator, ...]:
        return (Sketch(lg_k),)

    def given_accumulators(self, lg_k: int) -> tuple[Accumulator, ...]:
        return (GivenSketch(lg_k),)

    def read(self, kind: ColumnType | None) -> str:
        return "CAST(hll_estimate(LIST(:hll)) AS BIGINT)"

    def finish(self, kind: ColumnType) -> Finish | None:
        return "distinct"
