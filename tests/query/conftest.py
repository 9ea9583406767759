"""A small world of events for the query service; see `rtolap.testing.query_world`."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from rtolap.format.schema import arrow_type
from rtolap.model.cube import AggregationGroup, Cube, Measure, Schema, SegmentPolicy
from rtolap.model.table import Column, Lookup, Table, TimeColumn
from rtolap.query.service import QueryService
from rtolap.testing.query_world import PARTITIONS, QueryWorld

START = datetime(2013, 1, 1)
AIRLINES = Lookup(
    name="airlines", file="airlines.csv", columns=(Column("carrier", "string"), Column("name", "string"))
)
AIRLINES_CSV = "carrier,name\nAA,American\nUA,United\nZZ,Nobody\n"


def flights_schema() -> Schema:
    table = Table(
        name="flight_events",
        topic="flights",
        columns=(
            Column("ts", "timestamp"),
            Column("carrier", "string"),
            Column("origin", "string"),
            Column("gate", "int"),
            Column("fare_class", "decimal(6,2)"),
            Column("flown_on", "date"),
            Column("delay", "int"),
            Column("price", "decimal(10,2)"),
            Column("distance", "bigint"),
            Column("weight", "double"),
            Column("passenger", "string"),
        ),
        time=TimeColumn("ts"),
    )
    cube = Cube(
        name="flights",
        table="flight_events",
        dimensions=("carrier", "origin", "gate", "fare_class", "flown_on"),
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
            Measure("approx_distinct", "passenger"),
        ),
        segment=SegmentPolicy(window_ms=6 * 3_600_000),
    )
    return Schema(table, cube)


def random_events(rng: random.Random, rows: int) -> pa.Table:
    """Nulls everywhere but in the event time; whole seconds; offsets dense per partition."""

    def some(value: object) -> object:
        return None if rng.random() < 0.15 else value

    schema = flights_schema()
    next_offset = [0] * PARTITIONS
    columns: dict[str, list[object]] = {column.name: [] for column in schema.table.columns}
    columns |= {"__partition": [], "__offset": []}
    for _ in range(rows):
        at = START + timedelta(seconds=rng.randrange(3 * 86_400))
        partition = rng.randrange(PARTITIONS)
        columns["ts"].append(at)
        columns["carrier"].append(some(rng.choice(["AA", "UA", "DL", "é'\"%_"])))
        columns["origin"].append(some(rng.choice(["JFK", "LGA", "EWR"])))
        columns["gate"].append(some(rng.randrange(-2, 3)))
        columns["fare_class"].append(some(Decimal(rng.randrange(-300, 300)) / 100))
        columns["flown_on"].append(some(at.date()))
        columns["delay"].append(some(rng.randrange(-60, 400)))
        columns["price"].append(some(Decimal(rng.randrange(-10_000, 10_000_000)) / 100))
        columns["distance"].append(some(rng.randrange(-(2**62), 2**62)))
        columns["weight"].append(some(rng.randrange(-1000, 1000) / 8))
        columns["passenger"].append(some(f"p{rng.randrange(500)}"))
        columns["__partition"].append(partition)
        columns["__offset"].append(next_offset[partition])
        next_offset[partition] += 1
    fields = [pa.field(column.name, arrow_type(column.column_type)) for column in schema.table.columns]
    fields += [pa.field("__partition", pa.int32()), pa.field("__offset", pa.int64())]
    return pa.table(columns, schema=pa.schema(fields))


MakeWorld = Callable[[int, int], QueryWorld]


@pytest.fixture(scope="session")
def make_world() -> Iterator[MakeWorld]:
    """(seed, rows) → a world with about half of its segments in history."""
    made: list[QueryWorld] = []

    def make(seed: int, rows: int) -> QueryWorld:
        rng = random.Random(seed)
        world = QueryWorld(flights_schema(), random_events(rng, rows), {"airlines": (AIRLINES, AIRLINES_CSV)})
        made.append(world)
        for segment in world.segments():
            if rng.random() < 0.5:
                world.build(segment, rng)
        return world

    yield make
    for world in made:
        world.close()


@pytest.fixture(scope="module")
def world(make_world: MakeWorld) -> QueryWorld:
    return make_world(7, 800)


@pytest.fixture(scope="module")
def service(world: QueryWorld) -> Iterator[QueryService]:
    made = world.service()
    yield made
    made.close()
