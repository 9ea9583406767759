"""A cube with revisions answers as one: the rows of each, and NULL where an older one has no such column.

Held against the same SQL over the raw events, of which the older ones have lost those columns.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pytest
from rtolap.base.errors import QueryError
from rtolap.model.cube import Measure, Revision, Schema, SegmentPolicy
from rtolap.model.evolution.older_filter import OlderFilter
from rtolap.query.cubes import revisions
from rtolap.query.statement_service import QueryService

from tests.support.cubes.flights import (
    AIRLINE_ROWS,
    AIRLINES,
    AIRLINES_CSV,
    START,
    flights_schema,
    random_flights,
    routes_schema,
)
from tests.support.query.mariadb_oracle import Row
from tests.support.query.query_world import QueryWorld
from tests.support.query.random_analysis import FLIGHTS, ROUTES, AnalysisWriter, Places, rows_differ
from tests.support.query.sql_oracle import asked_of, oracle_cursor, rows_of
from tests.support.seeds import notices, so_many

HOUR_MS = 3_600_000
STATEMENTS = 40
DAY_1, DAY_2 = START + timedelta(days=1), START + timedelta(days=2)
SINCE = tuple(int((at - START.fromtimestamp(0)).total_seconds()) * 1000 for at in (DAY_1, DAY_2))
Asked = tuple[QueryService, duckdb.DuckDBPyConnection]


def revised(older: str = "null") -> list[Schema]:
    """Return three revisions of the flights, each with more dimensions and measures, and other windows."""
    whole = flights_schema()
    made = []
    columns: list[tuple[set[str], set[str], int]] = [
        ({"gate", "origin"}, {"delay", "price"}, 24),
        ({"origin"}, {"price"}, 12),
        (set(), set(), 6),
    ]
    for number, (lost, unmeasured, hours) in enumerate(columns, start=1):
        cube = msgspec.structs.replace(
            whole.cube,
            name="flights" if number == 1 else f"flights_r{number}",
            dimensions=tuple(name for name in whole.cube.dimensions if name not in lost),
            measures=tuple(each for each in whole.cube.measures if each.column not in unmeasured),
            aggregation_groups=() if lost else whole.cube.aggregation_groups,
            segment=SegmentPolicy(window_ms=hours * HOUR_MS),
            revision=Revision(
                "flights",
                number,
                since_ms=None if number == 1 else SINCE[number - 2],
                until_ms=None if number == 3 else SINCE[number - 1],
                older=older,  # type: ignore[arg-type]
            ),
        )
        made.append(Schema(whole.table, cube))
    return made


def world_of(seed: int, rows: int, schemas: list[Schema]) -> QueryWorld:
    rng = random.Random(seed)
    events = random_flights(rng, rows)
    made = QueryWorld(
        schemas[0], events, {"airlines": (AIRLINES, AIRLINES_CSV)}, *schemas[1:], routes_schema()
    )
    for cube in made.schemas:
        for segment in made.segments(cube):
            if rng.random() < 0.5:
                made.build(segment, rng, cube)
    return made


def seen(world: QueryWorld) -> pa.Table:
    """Return all flights as the newest revision has them, without what the older ones do not have."""
    every = QueryWorld(flights_schema(), world.events, {})
    with closing(every):
        table = every.visible()
    for place, names in ((0, ("gate", "delay")), (1, ("origin", "price"))):
        older = pa.array([at < (DAY_1, DAY_2)[place] for at in table.column("ts").to_pylist()])
        for name in names:
            column: Any = table.column(name)
            nothing = pa.nulls(len(column), column.type)
            place_of = table.column_names.index(name)
            table = table.set_column(
                place_of,
                name,
                pa.chunked_array([pa.compute.if_else(older, nothing, column.combine_chunks())]),
            )
    return table


@pytest.fixture(scope="module")
def world() -> Iterator[QueryWorld]:
    with closing(world_of(17, 240, revised())) as made:
        yield made


@pytest.fixture(scope="module")
def asked(world: QueryWorld) -> Iterator[Asked]:
    with closing(world.service()) as service, oracle_cursor() as oracle:
        oracle.register("flights", seen(world))
        oracle.register("routes", world.visible("routes"))
        oracle.register("airlines", AIRLINE_ROWS)
        yield service, oracle


def rows(table: pa.Table) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


STATED = [
    "select count(*), sum(delay), count(delay), max(price), count(distinct gate) from flights",
    "select gate, origin, count(*), avg(price), avg(delay) from flights group by gate, origin",
    "select day_start, count(*), min(delay), sum(distance) from flights group by 1",
    "select carrier, count(*) from flights where gate > 0 or carrier = 'AA' group by 1",
    "select carrier, count(*) from flights where not (gate > 0 and carrier = 'AA') group by 1",
    "select count(*) from flights where gate is null",
    "select count(*) from flights where gate is not null and origin in ('JFK', 'LGA')",
    "select count(*) from flights where origin not in ('JFK') or gate = 1",
    "select count(*) from flights where ts >= '2013-01-02' and gate = 1",
    "select count(*), sum(price) from flights where ts >= '2013-01-03'",
    "select origin, count(distinct passenger) > 0, count(distinct delay) from flights group by 1",
    "select count(distinct delay), count(delay) from flights where ts < '2013-01-02'",
    "select * from flights order by day_start desc, carrier, flown_on limit 5",
    "select f.gate, count(*), sum(f.delay) from flights f join airlines a on a.carrier = f.carrier "
    "group by 1",
]


@pytest.mark.parametrize("sql", STATED)
def test_statements_see_one_cube(sql: str, asked: Asked) -> None:
    service, oracle = asked
    if sql.startswith("select *"):
        assert service.execute(sql).table().num_rows == 5
        return
    assert rows_of(service.execute(sql).table()) == rows_of(asked_of(oracle, sql))


def run(asked: Asked, seed: int) -> int:
    service, oracle = asked
    places = Places("airlines", "carrier", "text", "name")
    writer = AnalysisWriter(random.Random(seed), (FLIGHTS, ROUTES), places)
    compared = 0
    for number in range(STATEMENTS):
        statement = writer.statement()
        if statement.kind in ("weeks", "roll-up"):
            continue
        ours = rows(service.execute(statement.sql).table())
        theirs = rows(asked_of(oracle, statement.oracle))
        difference = rows_differ(ours, theirs, ordered=statement.ordered)
        assert not difference, f"rows differ: seed {seed}, number {number}: {statement.sql}: {difference}"
        compared += 1
    return compared


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(4)))
def test_random_statements_equal_the_raw_rows(seed: int, asked: Asked) -> None:
    assert run(asked, seed) > STATEMENTS / 2


def test_a_filter_that_takes_a_missing_column_for_true_is_noticed(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = OlderFilter.of

    def true_of_null(self: OlderFilter, predicate: Any) -> Any:
        found = whole(self, predicate)
        return revisions.Known(True) if found == revisions.Known(None) else found

    monkeypatch.setattr(OlderFilter, "of", true_of_null)
    assert notices(lambda seed: run(asked, seed), 0, "rows differ")


def test_each_revision_is_asked_for_its_own_time(world: QueryWorld, asked: Asked) -> None:
    service, _ = asked
    before = len(world.asked)
    outcome = service.execute("select count(*) from flights where ts >= '2013-01-02' and ts < '2013-01-03'")
    assert outcome.positions == {"flights_r2": world.positions}
    outcome.close()
    assert {query.cube for _, query in world.asked[before:]} == {"flights_r2"}
    explained = dict(rows(service.execute("explain select gate, count(*) from flights group by 1").table()))
    assert {name for name, _ in explained.items()} >= {"cube", "history segments"}
    assert explained["cube"] == "flights"


def test_a_warning_names_the_columns_that_older_events_do_not_have(asked: Asked) -> None:
    service, _ = asked
    outcome = service.execute("select origin, count(*), sum(delay) from flights group by 1")
    outcome.table()
    texts = [warning.message for warning in outcome.warnings if warning.code == "column_since"]
    assert texts == [
        "flights has no origin, delay__sum of events before 2013-01-02T00:00:00+00:00: NULL stands there",
        "flights has no origin of events before 2013-01-03T00:00:00+00:00: NULL stands there",
    ]
    silent = service.execute("select count(*) from flights")
    silent.table()
    assert not [warning for warning in silent.warnings if warning.code == "column_since"]


def test_the_revisions_are_no_relations_of_their_own(asked: Asked) -> None:
    service, _ = asked
    assert service.catalogue().relation_names() == ("airlines", "flights", "routes")
    with pytest.raises(QueryError, match="flights_r2"):
        service.execute("select count(*) from flights_r2")


def test_what_would_mislead_is_refused_by_name() -> None:
    first, _, third = revised("null")
    assert first.cube.revision is not None
    assert third.cube.revision is not None
    cube = msgspec.structs.replace(
        first.cube,
        measures=(*first.cube.measures, Measure("sum", "delay")),
        time_dimensions=("day",),
        revision=msgspec.structs.replace(first.cube.revision, until_ms=SINCE[1]),
    )
    third = Schema(
        third.table,
        msgspec.structs.replace(
            third.cube, revision=msgspec.structs.replace(third.cube.revision, number=2), name="flights_r2"
        ),
    )
    with (
        closing(world_of(3, 60, [Schema(first.table, cube), third])) as made,
        closing(made.service()) as service,
    ):
        for sql, says in (
            ("select avg(delay) from flights", "only a part of what is needed of delay"),
            ("select hour_start, count(*) from flights group by 1", "no hour_start of events before"),
            (
                "select count(*) from flights where ts >= '2013-01-01 05:00:00'",
                "no hour_start of events before",
            ),
        ):
            with pytest.raises(QueryError, match=says) as caught:
                service.execute(sql)
            assert "a condition on ts that leaves them out" in str(caught.value.to_dict())
        for sql in (
            "select avg(delay), count(*) from flights where ts >= '2013-01-03'",
            "select sum(delay), max(delay) from flights",
            "select day_start, count(*) from flights group by 1",
        ):
            assert service.execute(sql).table().num_rows


def test_a_declared_refusal_names_the_columns() -> None:
    with closing(world_of(5, 60, revised("refuse"))) as made, closing(made.service()) as service:
        with pytest.raises(QueryError, match="no gate of events before"):
            service.execute("select gate, count(*) from flights group by 1")
        assert service.execute(
            "select gate, count(*) from flights where ts >= '2013-01-02' group by 1"
        ).table()
        assert service.execute("select count(*) from flights").table().num_rows == 1
