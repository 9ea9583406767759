"""Random flights and two cubes over them, for tests of the query service."""

from __future__ import annotations

import random
import shutil
import tempfile
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from rtolap.columnar.schema import arrow_type
from rtolap.model.cube import AggregationGroup, Cube, Measure, Schema, SegmentPolicy
from rtolap.model.table import Column, Lookup, Table, TimeColumn

from tests.support.in_memory import IN_MEMORY
from tests.support.query.query_world import PARTITIONS, QueryWorld

START = datetime(2013, 1, 1)
CARRIERS = ["AA", "UA", "DL", "é'\"%_", "日本 😀"]
AIRLINES = Lookup(
    name="airlines", file="airlines.csv", columns=(Column("carrier", "string"), Column("name", "string"))
)
AIRLINES_CSV = "carrier,name\nAA,American\nUA,United\nZZ,Nobody\n"
AIRLINE_ROWS = pa.table({"carrier": ["AA", "UA", "ZZ"], "name": ["American", "United", "Nobody"]})
_HOUR_MS = 3_600_000

# Histories of worlds that this process has made: the next world of the same numbers copies its files.
_HISTORIES: dict[tuple[object, ...], tempfile.TemporaryDirectory[str]] = {}


def flight_table(zone: str = "UTC") -> Table:
    return Table(
        name="flight_events",
        topic="flights",
        columns=(
            Column("ts", "timestamp"),
            Column("carrier", "string"),
            Column("origin", "string"),
            Column("gate", "int"),
            Column("fare_class", "decimal(6,2)"),
            Column("flown_on", "date"),
            Column("on_time", "boolean"),
            Column("delay", "int"),
            Column("price", "decimal(10,2)"),
            Column("distance", "bigint"),
            Column("weight", "double"),
            Column("passenger", "string"),
        ),
        time=TimeColumn("ts", zone=zone),
    )


def flights_schema(zone: str = "UTC") -> Schema:
    """Return a schema with six-hour segments, and two cuboids beside the base."""
    cube = Cube(
        name="flights",
        table="flight_events",
        dimensions=("carrier", "origin", "gate", "fare_class", "flown_on", "on_time"),
        time_dimensions=("hour", "day"),
        aggregation_groups=(
            AggregationGroup(
                include=("hour_start", "day_start", "carrier", "origin"), mandatory=("day_start",)
            ),
        ),
        measures=(
            Measure("sum", "delay"),
            Measure("count", "delay"),
            Measure("min", "delay"),
            Measure("max", "delay"),
            Measure("avg", "price"),
            Measure("max", "price"),
            Measure("sum", "distance"),
            Measure("avg", "weight"),
            Measure("min", "ts"),
            Measure("max", "ts"),
            Measure("approx_distinct", "passenger"),
            Measure("count_distinct", "delay"),
            Measure("count_distinct", "price"),
        ),
        segment=SegmentPolicy(window_ms=6 * _HOUR_MS),
    )
    return Schema(flight_table(zone), cube)


def routes_schema(zone: str = "UTC") -> Schema:
    """Return the schema of another cube over the same events, with segments of another length."""
    cube = Cube(
        name="routes",
        table="flight_events",
        dimensions=("origin", "carrier"),
        time_dimensions=("day", "month"),
        measures=(Measure("sum", "distance"), Measure("max", "delay")),
        segment=SegmentPolicy(window_ms=24 * _HOUR_MS),
    )
    return Schema(flight_table(zone), cube)


def random_flights(rng: random.Random, rows: int, start: datetime = START, days: float = 3) -> pa.Table:
    """Return flights at whole seconds in UTC from `start` on, with nulls in every other column and offsets
    that are dense per partition."""

    def some(value: object) -> object:
        return None if rng.random() < 0.15 else value

    next_offset = [0] * PARTITIONS
    table = flight_table()
    columns: dict[str, list[object]] = {column.name: [] for column in table.columns}
    columns |= {"__partition": [], "__offset": []}
    for _ in range(rows):
        at = start + timedelta(seconds=rng.randrange(int(days * 86_400)))
        partition = rng.randrange(PARTITIONS)
        columns["ts"].append(at)
        columns["carrier"].append(some(rng.choice(CARRIERS)))
        columns["origin"].append(some(rng.choice(["JFK", "LGA", "EWR"])))
        columns["gate"].append(some(rng.randrange(-2, 3)))
        columns["fare_class"].append(some(Decimal(rng.randrange(-300, 300)) / 100))
        columns["flown_on"].append(some(at.date()))
        columns["on_time"].append(some(rng.random() < 0.7))
        columns["delay"].append(some(rng.randrange(-60, 400)))
        columns["price"].append(some(Decimal(rng.randrange(-10_000, 10_000_000)) / 100))
        columns["distance"].append(some(rng.randrange(-(2**62), 2**62)))
        columns["weight"].append(some(rng.randrange(-1000, 1000) / 8))
        columns["passenger"].append(some(f"p{rng.randrange(500)}"))
        columns["__partition"].append(partition)
        columns["__offset"].append(next_offset[partition])
        next_offset[partition] += 1
    fields = [pa.field(column.name, arrow_type(column.column_type)) for column in table.columns]
    fields += [pa.field("__partition", pa.int32()), pa.field("__offset", pa.int64())]
    return pa.table(columns, schema=pa.schema(fields))


def flights_world(
    seed: int, rows: int, *, zone: str = "UTC", start: datetime = START, days: float = 3
) -> QueryWorld:
    """Return both cubes, each with about half of its segments in history. The caller closes the world."""
    rng = random.Random(seed)
    events = random_flights(rng, rows, start, days)
    world = QueryWorld(
        flights_schema(zone), events, {"airlines": (AIRLINES, AIRLINES_CSV)}, routes_schema(zone)
    )
    drawn = (seed, rows, zone, start, days)
    if drawn in _HISTORIES:
        shutil.copytree(_HISTORIES[drawn].name, world.folder / "store", dirs_exist_ok=True)
    for cube in world.schemas:
        for segment in world.segments(cube):
            if Path(world.store.absolute(f"history/{cube}/{segment.name}")).exists():
                world.have_built(segment, cube)
            elif drawn not in _HISTORIES and rng.random() < 0.5:
                world.build(segment, rng, cube)
    if drawn not in _HISTORIES:
        _HISTORIES[drawn] = tempfile.TemporaryDirectory(prefix="rtolap-flights-", dir=IN_MEMORY)
        shutil.copytree(world.folder / "store", _HISTORIES[drawn].name, dirs_exist_ok=True)
    return world
