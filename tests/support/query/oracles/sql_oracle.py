"""The same SQL over the raw events, in an engine without cubes: what answers are held against."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot
from rtolap.query.sql.dialect import RtolapSql

from tests.support.cubes.flights import AIRLINE_ROWS
from tests.support.query.query_world import QueryWorld


@functools.cache
def _oracle() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


def oracle_cursor() -> duckdb.DuckDBPyConnection:
    """Return a connection of its own to an engine that this process has: what it registers is seen by no
    other."""
    return _oracle().cursor()


@contextmanager
def open_oracle(world: QueryWorld) -> Iterator[duckdb.DuckDBPyConnection]:
    """Return every cube of the world as a table of its raw events, in local time; and the lookup
    `airlines`."""
    with oracle_cursor() as connection:
        for cube in world.schemas:
            connection.register(cube, world.visible(cube))
        connection.register("airlines", AIRLINE_ROWS)
        yield connection


def asked_of(oracle: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    """Ask the oracle in SQL as users write it."""
    tree = sqlglot.parse_one(sql, dialect=RtolapSql)
    engine = tree.sql(dialect="duckdb").replace("TIMESTAMPTZ", "TIMESTAMP")
    result: Any = oracle.execute(engine)
    found: pa.Table = result.to_arrow_reader(1 << 20).read_all()
    return found


def rows_of(table: pa.Table) -> list[tuple[object, ...]]:
    """Return rows, sorted, numbers comparable whatever their type; doubles to twelve digits."""
    rows = [tuple(_comparable(value) for value in row.values()) for row in table.to_pylist()]
    return sorted(rows, key=repr)


def _comparable(value: object) -> object:
    if isinstance(value, bool | str) or value is None:
        return value
    if isinstance(value, float):
        return Decimal(f"{value:.12e}").normalize() + 0
    if isinstance(value, int | Decimal):
        return Decimal(value)
    return str(value)
