"""VARIANCE and STDDEV, of a population and of a sample: exact sums, so parts merge exactly.

Three sums are stored of a column: of its values, of their number, and of their squares. With n values, sum S
and sum of squares Q, the variance is (n·Q − S²) / (n·(n − d)), where d is 0 for a population and 1 for a
sample. n·Q − S² is computed in whole numbers of any size and rounded once, at the end, so nothing cancels out
however far the values lie from 0. A square of 64 bits has 128: its upper and its lower part are summed apart.

Doubles are not taken: their squares have no exact sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rtolap.aggregates.accumulator import Accumulator, C, Fold, GroupedColumn, SquarePart
from rtolap.aggregates.count import ValueCount
from rtolap.aggregates.function import LG_K_DEFAULT, Aggregate
from rtolap.aggregates.sum import Total
from rtolap.column_types import ColumnType, Kind, decimal

DEVIATION = "rtolap_variance"  # the engine's function, see `query.engine_functions.exact_variance`
LOW_BITS = 32  # of a square, that are summed apart from its other 96
UNSCALED_DIGITS_MAX = 18  # of decimals whose unscaled value has 64 bits
_READ_BY = (DEVIATION, "sqrt", "sum")
_SUM = decimal(38, 0)


@dataclass(frozen=True)
class Squares(Accumulator):
    """The sum of one part of the squares of unscaled values."""

    takes_dimensions: ClassVar[bool] = False  # a row stands for many events
    adds: ClassVar[bool] = True
    arrow_kernel: ClassVar[str | None] = "sum"
    fold: ClassVar[Fold | None] = Fold("add", 0)
    folded_kinds: ClassVar[frozenset[Kind]] = frozenset(("decimal",))
    part: ClassVar[SquarePart]

    def result_type(self, source: ColumnType) -> ColumnType:
        return _SUM

    def begin(self, events: GroupedColumn[C], kind: ColumnType) -> C:
        return events.sum_squares(self.part, kind)

    def merge(self, partials: GroupedColumn[C], kind: ColumnType) -> C:
        return partials.sum(kind)

    def spark_merge(self, column: str, kind: ColumnType) -> str:
        return f"sum({column})"


@dataclass(frozen=True)
class LowSquares(Squares):
    name: ClassVar[str] = "squares_low"
    part: ClassVar[SquarePart] = "low"


@dataclass(frozen=True)
class HighSquares(Squares):
    name: ClassVar[str] = "squares_high"
    part: ClassVar[SquarePart] = "high"


class Deviation(Aggregate):
    """A function of how far values lie from their mean.

    Attributes:
        missing: how many values fewer the divisor counts: 0 for a population, 1 for a sample.
        is_root: True for a standard deviation.
    """

    missing: ClassVar[int]
    is_root: ClassVar[bool]

    def mismatch(self, column: ColumnType) -> str:
        is_exact = column.kind in ("int", "bigint") or (
            column.kind == "decimal" and column.precision <= UNSCALED_DIGITS_MAX
        )
        return (
            "" if is_exact else f"a column of whole numbers, or of decimals of {UNSCALED_DIGITS_MAX} digits"
        )

    def accumulators(self, lg_k: int = LG_K_DEFAULT) -> tuple[Accumulator, ...]:
        return (Total(), ValueCount(), HighSquares(), LowSquares())

    def read(self, kind: ColumnType | None) -> str:
        sums = "CAST(SUM(:sum) AS VARCHAR), SUM(:squares_high), SUM(:squares_low)"
        variance = f"CAST({DEVIATION}(CAST(SUM(:count) AS BIGINT), {sums}, {self.missing}) AS DOUBLE)"
        return f"SQRT({variance})" if self.is_root else variance


class VarPop(Deviation):
    name: ClassVar[str] = "var_pop"
    title: ClassVar[str] = "VAR_POP"
    sql_key: ClassVar[str] = "variancepop"
    engine_functions: ClassVar[tuple[str, ...]] = (*_READ_BY, "var_pop")
    shown: ClassVar[int] = 70
    missing: ClassVar[int] = 0
    is_root: ClassVar[bool] = False


class VarSamp(Deviation):
    name: ClassVar[str] = "var_samp"
    title: ClassVar[str] = "VAR_SAMP"
    sql_key: ClassVar[str] = "variance"
    engine_functions: ClassVar[tuple[str, ...]] = (*_READ_BY, "var_samp", "variance")
    shown: ClassVar[int] = 71
    missing: ClassVar[int] = 1
    is_root: ClassVar[bool] = False


class StddevPop(Deviation):
    name: ClassVar[str] = "stddev_pop"
    title: ClassVar[str] = "STDDEV_POP"
    sql_key: ClassVar[str] = "stddevpop"
    engine_functions: ClassVar[tuple[str, ...]] = (*_READ_BY, "stddev_pop")
    shown: ClassVar[int] = 72
    missing: ClassVar[int] = 0
    is_root: ClassVar[bool] = True


class StddevSamp(Deviation):
    name: ClassVar[str] = "stddev_samp"
    title: ClassVar[str] = "STDDEV_SAMP"
    sql_key: ClassVar[str] = "stddevsamp"
    engine_functions: ClassVar[tuple[str, ...]] = (*_READ_BY, "stddev_samp")
    shown: ClassVar[int] = 73
    missing: ClassVar[int] = 1
    is_root: ClassVar[bool] = True


def variance(count: int, total: int, squares: int, missing: int, scale: int) -> float | None:
    """Return the variance, rounded once; None of fewer than `missing` + 1 values.

    Args:
        count: of the values.
        total: the sum of the unscaled values.
        squares: the sum of their squares.
        missing: see `Deviation`.
        scale: digits behind the point.
    """
    if count <= missing:
        return None
    divisor: int = count * (count - missing) * 100**scale
    return (count * squares - total * total) / divisor
