"""A small cube with every type and measure, random decoded events for it, and their slow roll-up."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from rtolap.columnar.schema import EVENT_MS, OFFSET, PARTITION, arrow_type
from rtolap.model.cube import Cube, Measure, Schema
from rtolap.model.table import Column, Table, TimeColumn

START_MS = 1_357_034_400_000  # 2013-01-01 10:00 UTC

TABLE = Table(
    name="t",
    topic="t",
    columns=(
        Column("ts", "timestamp"),
        Column("city", "string"),
        Column("code", "int"),
        Column("day", "date"),
        Column("ok", "boolean"),
        Column("big", "bigint"),
        Column("price", "decimal(12,2)"),
        Column("wide", "decimal(38,4)"),
        Column("rate", "double"),
        Column("user", "string"),
    ),
    time=TimeColumn("ts", "epoch_ms", "America/New_York"),
)
CUBE = Cube(
    name="c",
    table="t",
    dimensions=("city", "code", "day", "ok"),
    time_dimensions=("hour", "day"),
    measures=(
        Measure("count"),
        Measure("count", "user"),
        Measure("sum", "big"),
        Measure("avg", "price"),
        Measure("sum", "wide"),
        Measure("sum", "code"),
        Measure("min", "user"),
        Measure("max", "user"),
        Measure("min", "big"),
        Measure("max", "price"),
        Measure("min", "day"),
        Measure("max", "ok"),
        Measure("min", "rate"),
        Measure("max", "ts"),
        Measure("approx_distinct", "user"),
        Measure("count_distinct", "user"),
        Measure("count_distinct", "big"),
        Measure("count_distinct", "wide"),
    ),
)


@pytest.fixture
def schema() -> Schema:
    return Schema(TABLE, CUBE)


@pytest.fixture
def random_events() -> Callable[[int, int], pa.Table]:
    return events


@cache  # several tests ask for the same, and nobody can change a table
def events(seed: int, rows: int) -> pa.Table:
    """Decoded events: many nulls, few distinct dimension values, whole numbers up to the very limits."""
    rng = random.Random(seed)

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.15 else value

    def one(offset: int) -> dict[str, Any]:
        event_ms = START_MS + rng.randrange(3 * 3_600_000)
        return {
            "ts": datetime.fromtimestamp(event_ms / 1000, UTC).replace(tzinfo=None),
            "city": maybe(rng.choice(["", "Oslo", "Æ", "Quito"])),
            "code": maybe(rng.choice([-(2**31), 0, 2**31 - 1])),
            "day": maybe(date(2013, 1, 1) + timedelta(days=rng.randrange(2))),
            "ok": maybe(rng.random() < 0.5),
            "big": maybe(rng.choice([-(2**63), 2**63 - 1, rng.randrange(-50, 50)])),
            "price": maybe(Decimal(rng.randrange(-(10**12) + 1, 10**12)).scaleb(-2)),
            "wide": maybe(Decimal(rng.randrange(-(10**34), 10**34)).scaleb(-4)),
            "rate": maybe(rng.randrange(-1000, 1000) / 8),
            "user": maybe(rng.choice(["", *(f"user-{number}" for number in range(30))])),
            EVENT_MS: event_ms,
            PARTITION: rng.randrange(4),
            OFFSET: offset,
        }

    fields = [pa.field(column.name, arrow_type(column.column_type)) for column in TABLE.columns]
    fields += [pa.field(EVENT_MS, pa.int64()), pa.field(PARTITION, pa.int32()), pa.field(OFFSET, pa.int64())]
    return pa.Table.from_pylist([one(offset) for offset in range(rows)], pa.schema(fields))
