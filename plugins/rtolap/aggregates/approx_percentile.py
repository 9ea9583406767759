"""APPROX_PERCENTILE: a quantile out of KLL sketches of Apache DataSketches, within a stated error of rank.

Values are taken as doubles. A sketch of at most k values holds all of them and is exact. Larger ones drop
values at random, so two replicas, or two ways of merging, may answer differently, each within the error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from rtolap.aggregates.accumulator import Accumulator, C, GivenForm, GroupedColumn
from rtolap.aggregates.function import Aggregate
from rtolap.column_types import BINARY, ColumnType

KLL_K_DEFAULT = 200
KLL_QUANTILE = "kll_quantile"  # the engine's function, see `query.engine_functions.quantiles`
_VALUE_BYTES = 8
_ERROR_SCALE, _ERROR_POWER = 2.296, 0.9723  # the library's, for one rank at 99 % confidence
_NEAR_SIZE, _LEVELS_MAX = 3, 61  # a sketch retains some 3 k values, and at least 8 in each of its levels


@dataclass(frozen=True)
class Quantiles(Accumulator):
    """A KLL sketch of doubles in the public format of DataSketches."""

    name: ClassVar[str] = "kll"
    takes_dimensions: ClassVar[bool] = False  # a row stands for many events
    k: int

    @property
    def sketch_bytes(self) -> int:
        return _VALUE_BYTES * (_NEAR_SIZE * self.k + 8 * _LEVELS_MAX)

    @property
    def rank_error(self) -> float:
        return float(_ERROR_SCALE / self.k**_ERROR_POWER)

    def result_type(self, source: ColumnType) -> ColumnType:
        return BINARY

    def begin(self, events: GroupedColumn[C], kind: ColumnType) -> C:
        return events.sketch_quantiles(self.k)

    def merge(self, partials: GroupedColumn[C], kind: ColumnType) -> C:
        return partials.unite_quantiles(self.k)

    def spark_merge(self, column: str, kind: ColumnType) -> str:
        return f"CASE WHEN count({column}) > 0 THEN kll_merge_agg_double({column}, {self.k}) END"


@dataclass(frozen=True)
class GivenQuantiles(Quantiles):
    """The union of sketches that events bring along."""

    @property
    def given_form(self) -> GivenForm:
        return GivenForm("kll", self.k)

    def begin(self, events: GroupedColumn[C], kind: ColumnType) -> C:
        return events.unite_quantiles(self.k)


class ApproxPercentile(Aggregate):
    name: ClassVar[str] = "approx_percentile"
    title: ClassVar[str] = "APPROX_PERCENTILE"
    sql_key: ClassVar[str] = "approxquantile"
    engine_functions: ClassVar[tuple[str, ...]] = ("approx_quantile", KLL_QUANTILE, "list")
    shown: ClassVar[int] = 80
    takes_k: ClassVar[bool] = True
    takes_sketches: ClassVar[bool] = True
    parameters: ClassVar[Mapping[str, str]] = {"quantile": "a number from 0 to 1"}

    def mismatch(self, column: ColumnType) -> str:
        return "" if column.is_numeric else "a numeric column"

    def accumulators(self, lg_k: int = KLL_K_DEFAULT) -> tuple[Accumulator, ...]:
        return (Quantiles(lg_k),)

    def given_accumulators(self, lg_k: int) -> tuple[Accumulator, ...]:
        return (GivenQuantiles(lg_k),)

    def read(self, kind: ColumnType | None) -> str:
        return f"{KLL_QUANTILE}(LIST(:kll), CAST(:quantile AS DOUBLE))"

    def takes_parameter(self, name: str, value: object) -> bool:
        return not isinstance(value, bool) and 0 <= float(str(value)) <= 1
