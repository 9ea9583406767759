"""A small world of events for the query service; see `tests.support.cubes.flights`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import duckdb
import pytest
from rtolap.query.engine import EmbeddedEngine
from rtolap.query.statement_service import QueryService

from tests.support.cubes.flights import flights_world
from tests.support.query.oracles.sql_oracle import open_oracle
from tests.support.query.query_world import QueryWorld


@pytest.fixture(scope="module")
def engine() -> Iterator[EmbeddedEngine]:
    with contextlib.closing(EmbeddedEngine(memory_limit_bytes=1 << 28, threads=1)) as made:
        yield made


@pytest.fixture(scope="session")
def shared_world() -> Iterator[QueryWorld]:
    with contextlib.closing(flights_world(7, 800)) as made:
        yield made


@pytest.fixture(scope="module")
def world(request: pytest.FixtureRequest) -> Iterator[QueryWorld]:
    """One for all modules; those that say CHANGES_WORLD have one of their own, which is the same at first."""
    if not getattr(request.module, "CHANGES_WORLD", False):
        yield request.getfixturevalue("shared_world")
        return
    with contextlib.closing(flights_world(7, 800)) as made:
        yield made


@pytest.fixture(scope="module")
def service(world: QueryWorld) -> Iterator[QueryService]:
    with contextlib.closing(world.service()) as made:
        yield made


@pytest.fixture(scope="module")
def oracle(world: QueryWorld) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_oracle(world) as opened:
        yield opened
