"""BIT_OR: the bits that any value has, as 64 bits; negative numbers are in two's complement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rtolap.aggregates.accumulator import Accumulator, Fold
from rtolap.aggregates.bits import BitAggregate, Bits
from rtolap.aggregates.function import LG_K_DEFAULT
from rtolap.column_types import ColumnType


@dataclass(frozen=True)
class UnitedBits(Bits):
    """The bits that any value so far has."""

    is_idempotent: ClassVar[bool] = True
    name: ClassVar[str] = "bit_or"
    fold: ClassVar[Fold] = Fold("bitwise_or", 0)


class BitOr(BitAggregate):
    name: ClassVar[str] = "bit_or"
    title: ClassVar[str] = "BIT_OR"
    sql_key: ClassVar[str] = "bitwiseoragg"
    engine_functions: ClassVar[tuple[str, ...]] = ("bit_or",)
    shown: ClassVar[int] = 45
    empty: ClassVar[int | None] = 0

    def accumulators(self, lg_k: int = LG_K_DEFAULT) -> tuple[Accumulator, ...]:
        return (UnitedBits(),)

    def read(self, kind: ColumnType | None) -> str:
        return "BIT_OR(:bit_or)"
