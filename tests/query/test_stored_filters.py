"""Conditions that nodes apply leave out nothing that the engine would keep: all types, NULL, NaN."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from rtolap.columnar.pushed_schema import rows_schema
from rtolap.model.stored.table import Buckets, RangePartitions, StoredColumn, StoredTable
from rtolap.protocols.stored_tables.messages import TableName
from rtolap.query.statement_service import QueryService

from tests.support.query.query_world import QueryWorld
from tests.support.query.random_stored_statements import TYPES, VALUES, condition
from tests.support.stored.stored_world import StoredWorld

CONDITIONS = int(os.environ.get("RTOLAP_TEST_CONDITIONS", "80"))
ROWS = 400
TABLE = TableName("shop", "mixed")


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
        schema = rows_schema(stored.catalogue.table(TABLE.db, TABLE.name).schema, tuple(TYPES))
        opened.register("mixed", pa.Table.from_pylist(rows, schema))
        yield opened


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
