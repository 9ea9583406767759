"""A decoder over a table with every type, and a short way to feed it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rtolap.events.decode import Decoded, EventDecoder
from rtolap.model.cube import Cube, Measure, Schema
from rtolap.model.table import Column, Table, TimeColumn

NOW_MS = 1_400_000_000_000

COLUMNS = (
    Column("ts", "bigint"),
    Column("s", "string"),
    Column("i", "int"),
    Column("b", "bigint"),
    Column("f", "double"),
    Column("d", "decimal(6,2)"),
    Column("ok", "boolean"),
    Column("day", "date"),
    Column("at", "timestamp"),
    Column("deep", "int", path="outer.inner.n"),
    Column("unused", "int"),
)


@pytest.fixture
def decoder() -> Callable[..., EventDecoder]:
    """decoder(**table_changes) -> EventDecoder; all columns but `unused` are read."""

    def build(**changes: Any) -> EventDecoder:
        values: dict[str, Any] = {
            "name": "t",
            "topic": "t",
            "columns": COLUMNS,
            "time": TimeColumn("ts", "epoch_ms"),
        }
        table = Table(**(values | changes))
        measures = tuple(Measure("count", name) for name in ("b", "f", "d", "at", "deep"))
        cube = Cube(name="c", table="t", dimensions=("s", "i", "ok", "day"), measures=measures)
        return EventDecoder(Schema(table, cube))

    return build


@pytest.fixture
def decode(decoder: Callable[..., EventDecoder]) -> Callable[..., Decoded]:
    """decode(*values, **table_changes) -> Decoded; offsets are positions in `values`."""

    def run(*values: bytes | None, **changes: Any) -> Decoded:
        count = len(values)
        partitions, offsets = np.zeros(count, np.int32), np.arange(count, dtype=np.int64)
        return decoder(**changes).decode(list(values), partitions, offsets, now_ms=NOW_MS)

    return run
