"""Flights of one night in Newfoundland, in segments of half an hour, and the same rows for an oracle.

Local time is half an hour off the whole hours of UTC, so that local hours and segments of half an hour are
out of step; a week begins on the Sunday of that night, and its clocks go back at two o'clock.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
import pyarrow as pa
from rtolap.columnar.schema import arrow_type
from rtolap.model.cube import AggregationGroup, Cube, LatePolicy, Measure, Schema, SegmentPolicy
from rtolap.model.table import Column, Table, TimeColumn

from tests.support.cubes.flights import flight_table, random_flights

CUBE = "flights"
ZONE = "America/St_Johns"
WINDOW_MS = 1_800_000
START = datetime(2013, 11, 3, 1)  # UTC; 22:30 on Saturday there
HOURS = 5
_DIGITS = Decimal("0.00001")
_LATE_SHARE = 0.06
_JITTER_S = 600  # an event is sent so much after a later one at most
_ENCODERS = (msgspec.json.Encoder(decimal_format="number"), msgspec.json.Encoder(decimal_format="string"))


class Sent(NamedTuple):
    """A record of the topic, and whether it comes behind all others, when its segment may be closed."""

    partition: int
    value: bytes
    is_late: bool


def half_hour_schema(topic: str) -> Schema:
    """Return a schema of values with five digits behind the point: `rate`, a dimension, and `toll`, which is
    rounded to them."""
    columns = tuple(column for column in flight_table().columns if column.name != "passenger")
    added = (Column("rate", "decimal(9,5)"), Column("toll", "decimal(12,5)", rounding="half_up"))
    table = Table(
        name="flight_events", topic=topic, columns=columns + added, time=TimeColumn("ts", "iso8601", ZONE)
    )
    cube = Cube(
        name=CUBE,
        table=table.name,
        dimensions=("carrier", "origin", "gate", "fare_class", "flown_on", "on_time", "rate"),
        time_dimensions=("minute", "thirty_minute", "hour", "day", "week"),
        week_starts_on="sunday",
        aggregation_groups=(AggregationGroup(("week_start", "carrier"), mandatory=("week_start",)),),
        measures=(
            *(Measure(function, "delay") for function in ("sum", "count", "min", "max")),
            *(Measure(function, "price") for function in ("avg", "max")),
            *(Measure(function, "toll") for function in ("avg", "count", "min", "max")),
            Measure("sum", "distance"),
            Measure("avg", "weight"),
            *(Measure("count_distinct", column) for column in ("delay", "price")),
        ),
        segment=SegmentPolicy(window_ms=WINDOW_MS, allowed_lateness_ms=_JITTER_S * 1000),
        late=LatePolicy(merge_after_ms=1_000),
    )
    return Schema(table, cube)


def random_night(seed: int, events: int) -> tuple[list[Sent], pa.Table]:
    """Return records in the order of their sending, and the rows as SQL sees them: the event time in local
    time."""
    rng = random.Random(seed)
    flights = random_flights(rng, events, START, HOURS / 24).drop_columns(["passenger"])
    sent: list[tuple[bool, float, Sent]] = []
    rows: list[dict[str, Any]] = []
    for row in flights.to_pylist():
        partition = row.pop("__partition")
        row.pop("__offset")
        at = row.pop("ts").replace(tzinfo=UTC)
        if row["flown_on"] is not None:
            row["flown_on"] += timedelta(days=rng.randrange(-2, 3))
        row["rate"] = _some(rng, Decimal(rng.randrange(-400_000, 400_000)).scaleb(-5))
        toll = _some(rng, Decimal(rng.randrange(-(10**9), 10**9)).scaleb(-7))
        value = rng.choice(_ENCODERS).encode(_without_some_nulls(rng, {"ts": at, **row, "toll": toll}))
        is_late = rng.random() < _LATE_SHARE
        behind = at + timedelta(seconds=rng.randrange(_JITTER_S))
        sent.append((is_late, behind.timestamp(), Sent(partition, value, is_late)))
        rounded = None if toll is None else toll.quantize(_DIGITS, ROUND_HALF_UP)
        local = at.astimezone(ZoneInfo(ZONE)).replace(tzinfo=None)
        rows.append({"ts": local, **row, "toll": rounded})
    columns = half_hour_schema("").table.columns
    schema = pa.schema([(column.name, arrow_type(column.column_type)) for column in columns])
    return [record for *_, record in sorted(sent)], pa.Table.from_pylist(rows, schema=schema)


def oracle_definitions(table: str) -> Sequence[str]:
    """Return what a MySQL server lacks for the statements of `random_sql_times`: DATE_TRUNC, with weeks from
    Sunday, and the derived time dimensions, by its own arithmetic.
    """
    units = ("minute", "thirty_minute", "hour", "day", "week")
    derived = ", ".join(f"date_trunc('{unit}', ts) AS {unit}_start" for unit in units)
    truncate = """
        CREATE FUNCTION date_trunc(unit VARCHAR(20), at DATETIME) RETURNS DATETIME DETERMINISTIC
        RETURN CASE unit
            WHEN 'minute' THEN date_sub(at, INTERVAL second(at) SECOND)
            WHEN 'thirty_minute' THEN date_sub(at, INTERVAL minute(at) % 30 * 60 + second(at) SECOND)
            WHEN 'hour' THEN date_sub(at, INTERVAL minute(at) * 60 + second(at) SECOND)
            WHEN 'day' THEN timestamp(date(at))
            WHEN 'week' THEN timestamp(date_sub(date(at), INTERVAL dayofweek(at) - 1 DAY))
        END
    """
    return truncate, f"CREATE VIEW {CUBE} AS SELECT *, {derived} FROM {table}"


def _some(rng: random.Random, value: Decimal) -> Decimal | None:
    return None if rng.random() < 0.15 else value


def _without_some_nulls(rng: random.Random, row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None or rng.random() < 0.5}
