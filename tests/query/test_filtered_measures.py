"""Statements over filtered measures, in every spelling, equal the same SQL over the raw events."""

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
from rtolap.columnar.schema import arrow_type
from rtolap.model.cube import Cube, Measure, Schema, SegmentPolicy
from rtolap.model.table import Column, Table, TimeColumn
from rtolap.model.validation.definition import validate_schema
from rtolap.query.catalogue import QueryCatalogue
from rtolap.query.described import described
from rtolap.query.statement_service import QueryService

from tests.support.aggregates.measured import with_computed
from tests.support.query.oracles.sql_oracle import asked_of, oracle_cursor, rows_of
from tests.support.query.query_world import QueryWorld
from tests.support.seeds import so_many

pytestmark = pytest.mark.seeded

START = datetime(2013, 5, 1, 10)
GERMAN, LATE = "country = 'DE'", "delay > 15 AND country <> 'FR'"
TABLE = Table(
    name="orders",
    topic="orders",
    time=TimeColumn("at", "iso8601"),
    columns=(
        Column("at", "timestamp"),
        Column("shop", "string"),
        Column("country", "string"),
        Column("price", "decimal(8,2)"),
        Column("quantity", "int"),
        Column("delay", "int"),
        Column("buyer", "string"),
        Column("revenue", "decimal(20,2)", expression="price * quantity"),
    ),
)
CUBE = Cube(
    name="orders_by_shop",
    table="orders",
    dimensions=("shop",),
    measures=(
        Measure("count"),
        Measure("sum", "price"),
        Measure("sum", "price", where=GERMAN, name="german_price"),
        Measure("avg", "price", where=GERMAN, name="german_price"),
        Measure("max", "delay", where=GERMAN),
        Measure("count", "price", where=GERMAN, name="german_price"),
        Measure("count", where=LATE, name="late_orders"),
        Measure("sum", "revenue", where=LATE),
        Measure("min", "buyer", where=LATE),
        Measure("approx_distinct", "buyer", where=GERMAN),
        Measure("count_distinct", "delay", where=GERMAN),
        Measure("count", "price"),
        Measure("max", "price", where="shop = 'Quito'"),  # of which a sum follows from the dimension
    ),
    segment=SegmentPolicy(window_ms=3_600_000),
)
SCHEMA = Schema(TABLE, CUBE)
LATE_REVENUE = f"CASE WHEN {LATE} THEN price * quantity"


def events(rng: random.Random, rows: int) -> pa.Table:
    """Events of which one shop has German ones alone, of unknown price."""
    drawn = []
    for number in range(rows):
        shop = rng.choice((None, "Oslo", "Quito", "Kiel"))
        country = rng.choice((None, "DE", "FR", "NO"))
        price: Decimal | None = Decimal(rng.randrange(10_000)).scaleb(-2)
        if rng.random() < 0.3:
            price = None
        if shop == "Kiel":
            country, price = "DE", None
        drawn.append(
            {
                "at": START + timedelta(seconds=rng.randrange(3 * 3_600)),
                "shop": shop,
                "country": country,
                "price": price,
                "quantity": rng.choice((None, rng.randrange(9))),
                "delay": rng.choice((None, rng.randrange(-9, 40))),
                "buyer": rng.choice((None, f"b{rng.randrange(30)}")),
                "__partition": number % 4,
                "__offset": number // 4,
            }
        )
    fields = {column.name: arrow_type(column.column_type) for column in TABLE.columns}
    del fields["revenue"]
    fields |= {"__partition": pa.int32(), "__offset": pa.int64()}
    return with_computed(pa.Table.from_pylist(drawn, pa.schema(list(fields.items()))), SCHEMA)


@pytest.fixture(scope="module", params=range(so_many(1, 2)))
def world(request: pytest.FixtureRequest) -> Iterator[QueryWorld]:
    rng = random.Random(65 + request.param)
    validate_schema(SCHEMA)
    with contextlib.closing(QueryWorld(SCHEMA, events(rng, 400), {})) as made:
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


@pytest.mark.parametrize("keys", ["", "shop", "hour_start"])
@pytest.mark.parametrize("condition", ["", "shop = 'Kiel'", "shop <> 'Kiel'", "1 = 0"])
@pytest.mark.parametrize(
    "call",
    [
        f"SUM(CASE WHEN {GERMAN} THEN price END)",
        f"SUM(CASE WHEN {GERMAN} THEN price ELSE NULL END)",
        f"SUM(CASE WHEN {GERMAN} THEN price ELSE 0 END)",
        f"SUM(price) FILTER (WHERE {GERMAN})",
        "AVG(price) FILTER (WHERE (COUNTRY) = 'DE')",
        f"AVG(CASE WHEN ({GERMAN}) THEN (price) END)",
        f"COUNT(CASE WHEN {GERMAN} THEN price END)",
        f"MAX(delay) FILTER (WHERE {GERMAN})",
        f"COUNT(*) FILTER (WHERE {LATE})",
        f"COUNT(CASE WHEN {LATE} THEN 'x' END)",
        f"COUNT(CASE WHEN {GERMAN} THEN 1 END)",
        f"COUNT(DISTINCT CASE WHEN {GERMAN} THEN delay END)",
        f"COUNT(DISTINCT delay) FILTER (WHERE {GERMAN})",
        f"SUM(CASE WHEN {LATE} THEN 1 END)",
        f"SUM(CASE WHEN {LATE} THEN 1 ELSE 0 END)",
        f"AVG(CASE WHEN {LATE} THEN 1 ELSE 0 END)",
        f"1 - AVG(CASE WHEN {LATE} THEN 1 ELSE 0 END) FILTER (WHERE shop = 'Oslo')",
        f"SUM({LATE_REVENUE} END)",
        f"SUM({LATE_REVENUE} ELSE 0 END)",
        f"SUM(CASE WHEN {LATE} THEN revenue END)",
        f"SUM(revenue) FILTER (WHERE {LATE})",
        f"MIN(buyer) FILTER (WHERE {LATE})",
        "SUM(CASE WHEN shop = 'Quito' THEN price END)",
        "MAX(shop) FILTER (WHERE shop <> 'Oslo')",
        "COUNT(CASE WHEN shop = 'Quito' THEN price END)",
        f"SUM(CASE WHEN shop = 'Oslo' THEN CASE WHEN {GERMAN} THEN price END END)",
        f"SUM(CASE WHEN {GERMAN} THEN price ELSE 0 END) FILTER (WHERE shop <> 'Oslo')",
        f"SUM(CASE WHEN {LATE} THEN 1 ELSE 0 END) FILTER (WHERE shop = 'Oslo')",
        "SUM(german_price)",
        "COUNT(late_orders)",
        f"SUM(price) - COALESCE(SUM(CASE WHEN {GERMAN} THEN price END), 0)",
    ],
)
def test_an_answer_equals_the_raw_events(
    call: str, condition: str, keys: str, service: QueryService, oracle: duckdb.DuckDBPyConnection
) -> None:
    sql = f"SELECT {keys}{', ' if keys else ''}{call} v FROM orders_by_shop"
    sql += f" WHERE {condition}" if condition else ""
    sql += f" GROUP BY {keys}" if keys else ""
    assert rows_of(service.execute(sql).table()) == rows_of(asked_of(oracle, sql))


@pytest.mark.parametrize(
    ("mysql", "raw"),
    [
        (f"SUM(IF({GERMAN}, price, NULL))", f"SUM(CASE WHEN {GERMAN} THEN price END)"),
        (f"SUM(IF({GERMAN}, price, 0))", f"SUM(CASE WHEN {GERMAN} THEN price ELSE 0 END)"),
        (f"COUNT(IF({LATE}, 1, NULL))", f"COUNT(*) FILTER (WHERE {LATE})"),
        (f"SUM(IF({LATE}, 1, 0))", f"SUM(CASE WHEN {LATE} THEN 1 ELSE 0 END)"),
    ],
)
def test_if_is_a_spelling_too(
    mysql: str, raw: str, service: QueryService, oracle: duckdb.DuckDBPyConnection
) -> None:
    text = "SELECT shop, {} v FROM orders_by_shop GROUP BY shop HAVING {} IS NOT NULL"
    got = service.execute(text.format(mysql, mysql)).table()
    assert rows_of(got) == rows_of(asked_of(oracle, text.format(raw, raw)))


def test_an_estimate_counts_those_events_alone(
    service: QueryService, oracle: duckdb.DuckDBPyConnection
) -> None:
    sql = f"SELECT COUNT(DISTINCT buyer) FILTER (WHERE {GERMAN}) v FROM orders_by_shop"
    (got,), (expected,) = (
        service.execute(sql).table().column("v").to_pylist(),
        asked_of(oracle, sql).column("v").to_pylist(),
    )
    assert abs(got - expected) <= 1


def test_a_result_may_be_called_like_its_column(
    service: QueryService, oracle: duckdb.DuckDBPyConnection
) -> None:
    sql = f"SELECT SUM(price) FILTER (WHERE {GERMAN}) AS price FROM orders_by_shop"
    assert rows_of(service.execute(sql).table()) == rows_of(asked_of(oracle, sql))


def test_columns_show_what_was_declared(service: QueryService) -> None:
    catalogue = QueryCatalogue(cubes={CUBE.name: SCHEMA})
    comments = {column.name: column.comment for column in described(catalogue, CUBE.name)}
    assert comments["german_price"] == f"measure: avg, count, sum where {GERMAN}"
    assert comments["late_orders"] == f"measure: count where {LATE}"
    assert not [name for name in comments if name.startswith("where_")]
    shown = service.execute("SELECT * FROM orders_by_shop LIMIT 1").table().column_names
    assert {"SUM(german_price)", "COUNT(late_orders)"} <= set(shown)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT SUM(price) FILTER (WHERE country = 'FR') FROM orders_by_shop",
        "SELECT SUM(price) FILTER (WHERE quantity > 3) FROM orders_by_shop",
        "SELECT SUM(quantity) FILTER (WHERE country = 'DE') FROM orders_by_shop",
        "SELECT AVG(CASE WHEN country = 'DE' THEN price ELSE 0 END) FROM orders_by_shop",
    ],
)
def test_a_condition_that_is_not_declared_is_refused(sql: str, service: QueryService) -> None:
    with pytest.raises(QueryError, match="unknown column"):
        service.execute(sql)
