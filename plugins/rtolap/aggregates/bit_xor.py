"""BIT_XOR: the bits that an odd number of values has, as 64 bits; negative numbers in two's complement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rtolap.aggregates.accumulator import Accumulator, Fold
from rtolap.aggregates.bits import BitAggregate, Bits
from rtolap.aggregates.function import LG_K_DEFAULT
from rtolap.column_types import ColumnType


@dataclass(frozen=True)
class OddBits(Bits):
    """The bits that an odd number of the values so far has."""

    name: ClassVar[str] = "bit_xor"
    takes_dimensions: ClassVar[bool] = False  # a row stands for many events, which cancel each other out
    fold: ClassVar[Fold] = Fold("bitwise_xor", 0)


class BitXor(BitAggregate):
    name: ClassVar[str] = "bit_xor"
    title: ClassVar[str] = "BIT_XOR"
    sql_key: ClassVar[str] = "bitwisexoragg"
    engine_functions: ClassVar[tuple[str, ...]] = ("bit_xor",)
    shown: ClassVar[int] = 47
    empty: ClassVar[int | None] = 0

    def accumulators(self, lg_k: int = LG_K_DEFAULT) -> tuple[Accumulator, ...]:
        return (OddBits(),)

    def read(self, kind: ColumnType | None) -> str:
        return "BIT_XOR(:bit_xor)"
