"""BIT_AND: the bits that all values have, as 64 bits; negative numbers are in two's complement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rtolap.aggregates.accumulator import Accumulator, Fold
from rtolap.aggregates.bits import BitAggregate, Bits
from rtolap.aggregates.function import LG_K_DEFAULT
from rtolap.column_types import ColumnType


@dataclass(frozen=True)
class CommonBits(Bits):
    """The bits that all values so far have."""

    is_idempotent: ClassVar[bool] = True
    name: ClassVar[str] = "bit_and"
    fold: ClassVar[Fold] = Fold("bitwise_and", -1)


class BitAnd(BitAggregate):
    name: ClassVar[str] = "bit_and"
    title: ClassVar[str] = "BIT_AND"
    sql_key: ClassVar[str] = "bitwiseandagg"
    engine_functions: ClassVar[tuple[str, ...]] = ("bit_and",)
    shown: ClassVar[int] = 46
    empty: ClassVar[int | None] = (1 << 64) - 1

    def accumulators(self, lg_k: int = LG_K_DEFAULT) -> tuple[Accumulator, ...]:
        return (CommonBits(),)

    def read(self, kind: ColumnType | None) -> str:
        return "BIT_AND(:bit_and)"
