"""Statements over computed columns, by name or by expression, equal the same SQL over the raw events."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from rtolap.base.errors import QueryError
from rtolap.model.cube import Cube, Measure, Schema, SegmentPolicy
from rtolap.model.table import Column, Lookup, Table, TimeColumn
from rtolap.model.validation.definition import validate_schema
from rtolap.query.statement_service import QueryService

from tests.support.query.oracles.sql_oracle import asked_of, oracle_cursor, rows_of
from tests.support.query.query_world import QueryWorld

START = datetime(2013, 5, 1, 10)
REVENUE, LATE_DELAY, IS_LATE = "price * quantity", "CASE WHEN delay > 15 THEN delay END", "delay > 15"
TABLE = Table(
    name="orders",
    topic="orders",
    time=TimeColumn("at", "iso8601"),
    columns=(
        Column("at", "timestamp"),
        Column("shop", "string"),
        Column("price", "decimal(8,2)"),
        Column("quantity", "int"),
        Column("delay", "int"),
        Column("revenue", "decimal(20,2)", expression=REVENUE),
        Column("late_delay", "int", expression=LATE_DELAY),
        Column("is_late", "boolean", expression=IS_LATE),
    ),
)
CUBE = Cube(
    name="orders_by_shop",
    table="orders",
    dimensions=("shop", "is_late"),
    measures=(Measure("count"), Measure("sum", "revenue"), Measure("avg", "late_delay")),
    segment=SegmentPolicy(window_ms=3_600_000),
)
SCHEMA = Schema(TABLE, CUBE)
LOOKUP = Lookup(name="shops", file="shops.csv", columns=(Column("shop", "string"), Column("price", "int")))


def events(rng: random.Random, rows: int) -> pa.Table:
    drawn = []
    for number in range(rows):
        price = rng.choice((None, Decimal(rng.randrange(10_000)).scaleb(-2)))
        quantity, delay = rng.choice((None, rng.randrange(9))), rng.choice((None, rng.randrange(-9, 40)))
        drawn.append(
            {
                "at": START + timedelta(seconds=rng.randrange(3 * 3_600)),
                "shop": rng.choice((None, "Oslo", "Quito")),
                "price": price,
                "quantity": quantity,
                "delay": delay,
                "revenue": None if price is None or quantity is None else price * quantity,
                "late_delay": delay if delay is not None and delay > 15 else None,
                "is_late": None if delay is None else delay > 15,
                "__partition": number % 4,
                "__offset": number // 4,
            }
        )
    fields = {
        "at": pa.timestamp("us"),
        "shop": pa.string(),
        "price": pa.decimal128(8, 2),
        "quantity": pa.int32(),
        "delay": pa.int32(),
        "revenue": pa.decimal128(20, 2),
        "late_delay": pa.int32(),
        "is_late": pa.bool_(),
        "__partition": pa.int32(),
        "__offset": pa.int64(),
    }
    return pa.Table.from_pylist(drawn, pa.schema(list(fields.items())))


@pytest.fixture(scope="module")
def world() -> Iterator[QueryWorld]:
    rng = random.Random(5)
    validate_schema(SCHEMA)
    lookups = {"shops": (LOOKUP, "shop,price\nOslo,3\nQuito,4\n")}
    with contextlib.closing(QueryWorld(SCHEMA, events(rng, 400), lookups)) as made:
        made.build(made.segments()[0], rng)
        yield made


@pytest.fixture(scope="module")
def service(world: QueryWorld) -> Iterator[QueryService]:
    with contextlib.closing(world.service()) as made:
        yield made


@pytest.fixture(scope="module")
def oracle(world: QueryWorld) -> Iterator[duckdb.DuckDBPyConnection]:
    with oracle_cursor() as connection:
        connection.register(CUBE.name, world.visible())
        yield connection


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT SUM(revenue) v FROM orders_by_shop",
        "SELECT SUM(price * quantity) v FROM orders_by_shop",
        "SELECT shop, SUM((Price) * (quantity)) v FROM orders_by_shop GROUP BY shop",
        "SELECT SUM(o.price * o.quantity) v FROM orders_by_shop o WHERE shop = 'Oslo'",
        "SELECT SUM(price * quantity) + 1 v FROM orders_by_shop WHERE NOT delay > 15",
        "SELECT delay > 15 late, COUNT(*) n FROM orders_by_shop GROUP BY delay > 15",
        "SELECT AVG(CASE WHEN delay > 15 THEN delay END) v FROM orders_by_shop",
        "SELECT SUM(CASE WHEN delay > 15 THEN price * quantity ELSE 0 END) v FROM orders_by_shop",
        "SELECT SUM(r) v FROM (SELECT shop, SUM(price * quantity) r FROM orders_by_shop GROUP BY shop) t",
    ],
)
def test_an_answer_equals_the_raw_events(
    sql: str, service: QueryService, oracle: duckdb.DuckDBPyConnection
) -> None:
    assert rows_of(service.execute(sql).table()) == rows_of(asked_of(oracle, sql))


def test_a_result_is_called_as_it_was_written(service: QueryService) -> None:
    table = service.execute("SELECT SUM(price * quantity) FROM orders_by_shop").table()
    assert table.column_names == ["SUM(price * quantity)"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT SUM(price) FROM orders_by_shop",
        "SELECT SUM(quantity * price) FROM orders_by_shop",  # written otherwise than it is declared
        "SELECT SUM(price * (quantity + 1)) FROM orders_by_shop",
    ],
)
def test_what_is_only_an_input_is_not_in_the_cube(sql: str, service: QueryService) -> None:
    with pytest.raises(QueryError, match="unknown column"):
        service.execute(sql)


def test_first_and_last_need_the_order_of_events(service: QueryService) -> None:
    for call in ("FIRST(price)", "LAST(price)"):
        with pytest.raises(QueryError, match="of a measure of a cube, by event time"):
            service.execute(f"SELECT {call} FROM shops")
    rows = service.execute("SELECT FIRST_VALUE(price) OVER (ORDER BY price) v FROM shops").table()
    assert rows.column("v").to_pylist() == [3, 3]


def test_a_column_of_a_lookup_is_not_taken_for_an_input(service: QueryService) -> None:
    sql = "SELECT SUM(price * quantity) FROM orders_by_shop o JOIN shops s ON o.shop = s.shop"
    with pytest.raises(QueryError, match="unknown column"):
        service.execute(sql)
