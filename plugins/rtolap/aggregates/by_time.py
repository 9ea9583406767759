"""FIRST and LAST: the value of the earliest or latest event in which the column is not null.

A partial is KEY_BYTES bytes that order as events do, and behind them the value as text. The order is by event
time in milliseconds, then by partition, then by offset, each as an unsigned number, most significant byte
first. So LAST merges as the greatest of bytes and FIRST as the least, in any engine and any order, and events
of the same millisecond have one order on every replica and in every replay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rtolap.aggregates.accumulator import Accumulator, C, GroupedColumn
from rtolap.aggregates.function import LG_K_DEFAULT, Aggregate
from rtolap.column_types import BINARY, ColumnType

PICKED_TEXT = "rtolap_picked"  # the engine's function, see `query.engine_functions.picked`
TIME_BYTES, PARTITION_BYTES, OFFSET_BYTES = 8, 4, 8
KEY_BYTES = TIME_BYTES + PARTITION_BYTES + OFFSET_BYTES
_ENGINE_TYPES = {"string": "VARCHAR", "int": "INTEGER"}


class Picked(Accumulator):
    takes_dimensions: ClassVar[bool] = False  # of a row nobody knows when its events were
    is_idempotent: ClassVar[bool] = True

    def result_type(self, source: ColumnType) -> ColumnType:
        return BINARY


@dataclass(frozen=True)
class Earliest(Picked):
    name: ClassVar[str] = "first"
    arrow_kernel: ClassVar[str | None] = "min"

    def begin(self, events: GroupedColumn[C], kind: ColumnType) -> C:
        return events.pick_earliest()

    def merge(self, partials: GroupedColumn[C], kind: ColumnType) -> C:
        return partials.least()

    def spark_merge(self, column: str, kind: ColumnType) -> str:
        return f"min({column})"


@dataclass(frozen=True)
class Latest(Picked):
    name: ClassVar[str] = "last"
    arrow_kernel: ClassVar[str | None] = "max"

    def begin(self, events: GroupedColumn[C], kind: ColumnType) -> C:
        return events.pick_latest()

    def merge(self, partials: GroupedColumn[C], kind: ColumnType) -> C:
        return partials.greatest()

    def spark_merge(self, column: str, kind: ColumnType) -> str:
        return f"max({column})"


class _ByTime(Aggregate):
    reads_source: ClassVar[bool] = True

    def mismatch(self, column: ColumnType) -> str:
        return "" if column.kind != "binary" else "a column of values"

    def value_of(self, picked: str, kind: ColumnType | None) -> str:
        """Return the engine's SQL for the value of a partial, in the column's own type."""
        text = f"{PICKED_TEXT}({picked})"
        return text if kind is None else f"CAST({text} AS {_ENGINE_TYPES.get(kind.kind, str(kind).upper())})"


class First(_ByTime):
    name: ClassVar[str] = "first"
    title: ClassVar[str] = "FIRST"
    sql_key: ClassVar[str] = "first"
    engine_functions: ClassVar[tuple[str, ...]] = (PICKED_TEXT, "min")
    shown: ClassVar[int] = 91

    def accumulators(self, lg_k: int = LG_K_DEFAULT) -> tuple[Accumulator, ...]:
        return (Earliest(),)

    def read(self, kind: ColumnType | None) -> str:
        return self.value_of("MIN(:first)", kind)


class Last(_ByTime):
    name: ClassVar[str] = "last"
    title: ClassVar[str] = "LAST"
    sql_key: ClassVar[str] = "last"
    engine_functions: ClassVar[tuple[str, ...]] = (PICKED_TEXT, "max")
    shown: ClassVar[int] = 90

    def accumulators(self, lg_k: int = LG_K_DEFAULT) -> tuple[Accumulator, ...]:
        return (Latest(),)

    def read(self, kind: ColumnType | None) -> str:
        return self.value_of("MAX(:last)", kind)
