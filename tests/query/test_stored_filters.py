"""Conditions that nodes apply leave out nothing that the engine would keep: all types, NULL, NaN."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from rtolap.model.stored.table import Buckets, RangePartitions, StoredColumn, StoredTable
from rtolap.protocols.stored_tables.messages import TableName
from rtolap.query.catalogue import arrow_schema
from rtolap.query.statement_service import QueryService

from tests.support.query.query_world import QueryWorld
from tests.support.stored.stored_world import StoredWorld

CONDITIONS = int(os.environ.get("RTOLAP_TEST_CONDITIONS", "80"))
ROWS = 400
TABLE = TableName("shop", "mixed")
TYPES = {
    "id": "int",
    "day": "date",
    "big": "bigint",
    "text": "string",
    "flag": "boolean",
    "number": "double",
    "price": "decimal(9,2)",
    "sold": "timestamp",
}
VALUES: dict[str, list[Any]] = {
    "id": list(range(30)),
    "day": [date(2024, 2, 27) + timedelta(days=at) for at in range(4)],
    "big": [None, 0, -1, 2**62, -(2**63), 2**63 - 1, 7],
    "text": [None, "", "a", "A", "ab", "ä", "zz", "50%", "a_b"],
    "flag": [None, True, False],
    "number": [None, 0.0, -0.0, 1.5, -2.25, float("inf"), float("-inf"), float("nan"), 1e300],
    "price": [None, Decimal("0.00"), Decimal("-1.50"), Decimal("9999999.99"), Decimal("0.01")],
    "sold": [
        None,
        datetime(2024, 1, 1),
        datetime(2024, 1, 1, 0, 0, 0, 1),
        datetime(2023, 12, 31, 23, 59, 59),
    ],
}


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    rng = random.Random(11)
    return [{name: rng.choice(values) for name, values in VALUES.items()} for _ in range(ROWS)]


@pytest.fixture(scope="module")
def stored(rows: list[dict[str, Any]]) -> Iterator[StoredWorld]:
    table = StoredTable(
        database=TABLE.db,
        name=TABLE.name,
        columns=tuple(
            StoredColumn(name, kind, nullable=name not in ("id", "day")) for name, kind in TYPES.items()
        ),
        keys=("id", "day"),
        partitions=RangePartitions("day", ahead=0),
        buckets=Buckets(2, ("id",)),
    )
    with StoredWorld(replication=1) as made:
        made.catalogue.create_table(table)
        made.load(TABLE, rows[: ROWS // 2])
        made.load(TABLE, rows[ROWS // 2 :])
        yield made


@pytest.fixture(scope="module")
def asked(world: QueryWorld, stored: StoredWorld) -> Iterator[QueryService]:
    service = world.service(stored=stored.source)
    yield service
    service.close()


@pytest.fixture(scope="module")
def oracle(stored: StoredWorld, rows: list[dict[str, Any]]) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        schema = arrow_schema(stored.catalogue.table(TABLE.db, TABLE.name).schema, tuple(TYPES))
        opened.register("mixed", pa.Table.from_pylist(rows, schema))
        yield opened


def constant(rng: random.Random, column: str) -> str:
    value = rng.choice([each for each in VALUES[column] if each is not None])
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        return str(value) if abs(value) < 1e9 else "1e300"  # neither language has words for NaN alike
    if isinstance(value, str | date):
        return f"'{value}'"
    return str(value)


def condition(rng: random.Random, depth: int = 2) -> str:
    pick = rng.random()
    if depth and pick < 0.45:
        word = rng.choice([" and ", " or "])
        return "(" + word.join(condition(rng, depth - 1) for _ in range(rng.randint(2, 3))) + ")"
    if depth and pick < 0.55:
        return f"not ({condition(rng, depth - 1)})"
    column = rng.choice(list(TYPES))
    if pick < 0.65:
        return f"{column} is {rng.choice(['', 'not '])}null"
    if pick < 0.75:
        values = ", ".join(constant(rng, column) for _ in range(rng.randint(1, 3)))
        return f"{column} {rng.choice(['', 'not '])}in ({values})"
    if pick < 0.8:
        return f"text {rng.choice(['', 'not '])}like '{rng.choice(['a%', '%b', '_', '%', '50%'])}'"
    if pick < 0.85 and column not in ("flag", "text"):
        return f"{column} between {constant(rng, column)} and {constant(rng, column)}"
    operator = rng.choice(["=", "<>", "<", "<=", ">", ">="])
    left, right = column, constant(rng, column)
    return f"{left} {operator} {right}" if rng.random() < 0.8 else f"{right} {operator} {left}"


@pytest.mark.parametrize("seed", range(CONDITIONS))
def test_the_same_rows_pass(asked: QueryService, oracle: duckdb.DuckDBPyConnection, seed: int) -> None:
    where = condition(random.Random(seed))
    sums = "count(*) n, sum(id) i, count(number) c, count(distinct text) t, max(day) d"
    found = asked.execute(f"select {sums} from shop.mixed where {where}").table().to_pylist()
    expected = oracle.execute(f"select {sums} from mixed where {where}").fetchall()
    assert [tuple(row.values()) for row in found] == expected, where


def test_most_conditions_reach_the_nodes(asked: QueryService, stored: StoredWorld) -> None:
    stored.source.scanned.clear()
    for seed in range(20):
        asked.execute(f"select count(*) from shop.mixed where {condition(random.Random(seed))}").table()
    pushed = [request.filter is not None for _, request in stored.source.scanned]
    assert sum(pushed) > 0.5 * len(pushed)
