"""HLL_SKETCH, KLL_SKETCH and FREQUENT_ITEMS_SKETCH: the sketches of measures as bytes, for other programs.

Nobody declares these functions. Each reads the accumulator of a function that is declared: of
`approx_distinct`, `approx_percentile` or `approx_top_k`. The bytes are the public format of Apache
DataSketches. They are the union of the group's sketches, so a client may merge those of many groups, of many
answers, and of other systems.

A group without a value gets NULL.
"""

from __future__ import annotations

from typing import ClassVar

from rtolap.aggregates.accumulator import Accumulator
from rtolap.aggregates.approx_distinct import ApproxDistinct
from rtolap.aggregates.approx_percentile import ApproxPercentile
from rtolap.aggregates.approx_top_k import ApproxTopK
from rtolap.aggregates.function import LG_K_DEFAULT, Aggregate
from rtolap.column_types import ColumnType

# The engine's functions, see `query.engine_functions.sketch_bytes`.
HLL_BYTES, KLL_BYTES, FREQUENT_ITEMS_BYTES = "hll_bytes", "kll_bytes", "frequent_items_bytes"


class SketchBytes(Aggregate):
    """A function that reads back the sketch of another one.

    Attributes:
        declared: the function whose measure keeps the sketches.
        spellings: further names of the function in SQL: those of Spark.
    """

    declared: ClassVar[Aggregate]
    spellings: ClassVar[tuple[str, ...]] = ()
    shown: ClassVar[int] = 0  # no column is shown as bytes

    @property
    def engine_name(self) -> str:
        return self.engine_functions[0]

    def mismatch(self, column: ColumnType) -> str:
        return self.declared.mismatch(column)

    def accumulators(self, lg_k: int = LG_K_DEFAULT) -> tuple[Accumulator, ...]:
        return self.declared.accumulators(lg_k)

    def read(self, kind: ColumnType | None) -> str:
        (accumulator,) = self.accumulators()
        return f"{self.engine_name}(LIST(:{accumulator.name}))"


class HllSketch(SketchBytes):
    name: ClassVar[str] = "approx_distinct"
    title: ClassVar[str] = "HLL_SKETCH"
    sql_key: ClassVar[str] = "hllsketch"
    spellings: ClassVar[tuple[str, ...]] = ("HLL_SKETCH_AGG",)
    engine_functions: ClassVar[tuple[str, ...]] = (HLL_BYTES, "list")
    declared: ClassVar[Aggregate] = ApproxDistinct()


class KllSketch(SketchBytes):
    name: ClassVar[str] = "approx_percentile"
    title: ClassVar[str] = "KLL_SKETCH"
    sql_key: ClassVar[str] = "kllsketch"
    spellings: ClassVar[tuple[str, ...]] = ("KLL_SKETCH_AGG_DOUBLE",)
    engine_functions: ClassVar[tuple[str, ...]] = (KLL_BYTES, "list")
    declared: ClassVar[Aggregate] = ApproxPercentile()


class FrequentItemsSketch(SketchBytes):
    name: ClassVar[str] = "approx_top_k"
    title: ClassVar[str] = "FREQUENT_ITEMS_SKETCH"
    sql_key: ClassVar[str] = "frequentitemssketch"
    engine_functions: ClassVar[tuple[str, ...]] = (FREQUENT_ITEMS_BYTES, "list")
    declared: ClassVar[Aggregate] = ApproxTopK()


SKETCH_BYTES: tuple[SketchBytes, ...] = (HllSketch(), KllSketch(), FrequentItemsSketch())
