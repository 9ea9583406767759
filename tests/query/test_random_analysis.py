"""Random statements of analysts equal the raw rows in an engine without cubes; planted faults are noticed.

Weeks and WITH ROLLUP, which that engine counts or spells in its own way, are asked of MariaDB:
`tests/integration/query/test_random_analysis.py`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing

import duckdb
import pyarrow as pa
import pytest
from rtolap.model.predicate import In
from rtolap.query.approval.value_lists import Members
from rtolap.query.cubes import value_sets
from rtolap.query.sql.rules.totals import EventTotals
from rtolap.query.statement_service import QueryService

from tests.support.cubes.flights import flights_world
from tests.support.query.oracles.mariadb_oracle import Row
from tests.support.query.oracles.sql_oracle import asked_of, open_oracle
from tests.support.query.random_analysis import FLIGHTS, ROUTES, AnalysisWriter, Places, rows_differ
from tests.support.seeds import notices, so_many

STATEMENTS = 40
OTHERWISE = ("weeks", "roll-up")
Asked = tuple[QueryService, duckdb.DuckDBPyConnection]


@pytest.fixture(scope="module")
def small() -> Iterator[Asked]:
    with (
        closing(flights_world(13, 120)) as world,
        closing(world.service()) as service,
        open_oracle(world) as oracle,
    ):
        yield service, oracle


def rows(table: pa.Table) -> Sequence[Row]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def run(asked: Asked, seed: int) -> None:
    service, oracle = asked
    writer = AnalysisWriter(
        random.Random(seed), (FLIGHTS, ROUTES), Places("airlines", "carrier", "text", "name")
    )
    for number in range(STATEMENTS):
        statement = writer.statement()
        if statement.kind in OTHERWISE:
            continue
        ours = rows(service.execute(statement.sql).table())
        theirs = rows(asked_of(oracle, statement.oracle))
        difference = rows_differ(ours, theirs, ordered=statement.ordered)
        assert not difference, f"rows differ: seed {seed}, number {number}: {statement.sql}: {difference}"


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(4)))
def test_random_statements_of_analysts_equal_the_raw_rows(seed: int, small: Asked) -> None:
    run(small, seed)


def test_pairs_that_are_not_counted_are_noticed(small: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EventTotals, "_repeated", lambda self, total: total)
    assert notices(lambda seed: run(small, seed), 4, "rows differ")


def test_values_that_are_not_pushed_are_noticed(small: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    def one_less(column: str, values: tuple[object, ...], negated: bool) -> In:
        return In(column, values[:-1] if not negated else (*values, values[0]), negated)

    monkeypatch.setattr(value_sets, "In", one_less)
    assert notices(lambda seed: run(small, seed), 0, "rows differ")


def test_values_that_are_lost_of_a_list_are_noticed(small: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Members.constants
    monkeypatch.setattr(Members, "constants", lambda self: whole(self)[1:])
    assert notices(lambda seed: run(small, seed), 4, "rows differ")
