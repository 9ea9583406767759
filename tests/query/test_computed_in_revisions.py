"""A computed column that a revision brings changes no answer about older events that can compute it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import duckdb
import msgspec
import pytest
from rtolap.base.errors import QueryError
from rtolap.model.cube import Measure, Revision, Schema
from rtolap.model.table import Column
from rtolap.query.sql.rules.computed import older
from rtolap.query.statement_service import QueryService

from tests.query.test_filtered_measures import CUBE, START, TABLE, events
from tests.support.aggregates.measured import with_computed
from tests.support.query.oracles.sql_oracle import asked_of, oracle_cursor, rows_of
from tests.support.query.query_world import QueryWorld
from tests.support.seeds import so_many

SEEDS = range(so_many(3))
STATEMENTS = 40
SINCE = START + timedelta(hours=2)
SINCE_MS = int((SINCE - datetime(1970, 1, 1)).total_seconds()) * 1000
GERMAN, LATE = "country = 'DE'", "delay > 15 AND country <> 'FR'"
COMPUTED = (
    Column("is_german", "boolean", expression=GERMAN),
    Column("is_late", "boolean", expression=LATE),
    Column("is_small", "boolean", expression="quantity < 3"),
)
DIMENSIONS = ("shop", "country", "delay")
FIRST_MEASURES = (Measure("count"), Measure("sum", "price"), Measure("max", "quantity"))


def schemas(policy: str, first_dimensions: tuple[str, ...] = DIMENSIONS) -> list[Schema]:
    """Return two revisions; the second one has computed dimensions and a filtered measure."""
    first = msgspec.structs.replace(
        CUBE,
        dimensions=first_dimensions,
        measures=FIRST_MEASURES,
        revision=Revision(CUBE.name, 1, until_ms=SINCE_MS),
    )
    second = msgspec.structs.replace(
        first,
        name=f"{CUBE.name}_r2",
        dimensions=(*DIMENSIONS, *(column.name for column in COMPUTED)),
        measures=(*FIRST_MEASURES, Measure("sum", "price", where=GERMAN), Measure("count", where=LATE)),
        revision=Revision(CUBE.name, 2, since_ms=SINCE_MS, older=policy),  # type: ignore[arg-type]
    )
    table = msgspec.structs.replace(TABLE, columns=(*TABLE.columns, *COMPUTED))
    return [Schema(table, first), Schema(table, second)]


@contextlib.contextmanager
def opened(
    policy: str, first_dimensions: tuple[str, ...] = DIMENSIONS
) -> Iterator[tuple[QueryService, duckdb.DuckDBPyConnection]]:
    rng = random.Random(7)
    made = schemas(policy, first_dimensions)
    raw = with_computed(events(rng, 300), made[1])
    with contextlib.closing(QueryWorld(made[0], raw, {}, made[1])) as world, oracle_cursor() as oracle:
        for cube in world.schemas:
            for segment in world.segments(cube)[::2]:
                world.build(segment, rng, cube)
        oracle.register(CUBE.name, raw)
        with contextlib.closing(world.service()) as service:
            yield service, oracle


@pytest.fixture(scope="module")
def asked() -> Iterator[tuple[QueryService, duckdb.DuckDBPyConnection]]:
    with opened("null") as both:
        yield both


TERMS = (
    *(
        "country = 'DE'",
        "is_german",
        "is_german = true",
        "not is_german",
        "is_german is null",
        "country = 'FR'",
    ),
    *("delay > 15 and country <> 'FR'", "is_late", "is_late is not null", "delay > 15", "shop = 'Oslo'"),
    *("(country = 'DE') is true", "coalesce(is_german, true)", "is_late = is_german", "is_german = false"),
)
TOTALS = (
    *("count(*)", "sum(price)", "max(quantity)", "count(*) filter (where country = 'DE')"),
    *("sum(case when country = 'DE' then price end)", "sum(price) filter (where country = 'DE')"),
    *("count(case when delay > 15 and country <> 'FR' then 1 end)", "sum(if(country = 'DE', price, 0))"),
    *("sum(delay) filter (where is_german)", "count(*) filter (where delay > 15 and country <> 'FR')"),
)
KEYS = ("shop", "country", "country = 'DE'", "delay > 15")


def drawn(rng: random.Random) -> str:
    key = rng.choice(KEYS)
    terms = [f"({rng.choice(('', '', 'not '))}({rng.choice(TERMS)}))" for _ in range(rng.randrange(3))]
    where = f" where {rng.choice((' and ', ' or ')).join(terms)}" if terms else ""
    return f"select {key}, {rng.choice(TOTALS)}, {rng.choice(TOTALS)} from {CUBE.name}{where} group by 1"


def differing(asked: tuple[QueryService, duckdb.DuckDBPyConnection], seed: int) -> list[str]:
    service, oracle = asked
    rng = random.Random(seed)
    wrong = []
    for sql in (drawn(rng) for _ in range(STATEMENTS)):
        outcome = service.execute(sql)
        ours = rows_of(outcome.table())
        if ours != rows_of(asked_of(oracle, sql)) or outcome.warnings:
            wrong.append(f"{sql}: {ours[:3]}, {outcome.warnings}")
    return wrong


@pytest.mark.seeded
@pytest.mark.parametrize("seed", SEEDS)
def test_conditions_on_what_all_revisions_have_equal_the_raw_rows(asked: Any, seed: int) -> None:
    assert not differing(asked, seed), f"seed {seed}"


def test_the_draw_notices_a_column_that_older_events_do_not_have(
    asked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(older.OlderRevisions, "_can_do_without", lambda *of: False)
    with opened("null") as both:
        assert differing(both, 0)


@pytest.mark.parametrize("condition", ["quantity < 3", "is_small"])
@pytest.mark.parametrize("policy", ["null", "refuse"])
def test_what_older_events_cannot_compute_goes_by_the_declared_policy(policy: str, condition: str) -> None:
    """The quantity is no dimension of either revision."""
    sql = f"select count(*) from {CUBE.name} where {condition}"
    with opened(policy) as (service, oracle):
        if policy == "refuse":
            with pytest.raises(QueryError, match="no is_small of events before"):
                service.execute(sql)
        else:
            outcome = service.execute(sql)
            newer = asked_of(oracle, f"{sql} and at >= timestamp '{SINCE}'")
            assert rows_of(outcome.table()) == rows_of(newer)
            assert [warning.code for warning in outcome.warnings] == ["column_since"]


def test_an_older_revision_that_lacks_the_columns_too_is_refused_by_their_names() -> None:
    sql = f"select count(*) from {CUBE.name} where country = 'DE'"
    with opened("refuse", ("shop", "delay")) as (service, oracle):
        with pytest.raises(QueryError, match=r"no is_german of events before|no country of events before"):
            service.execute(sql)
        later = f"{sql} and at >= timestamp '{SINCE}'"
        assert rows_of(service.execute(later).table()) == rows_of(asked_of(oracle, later))
