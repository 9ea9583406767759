"""A cube with revisions answers as one: the rows of each, and NULL where an older one has no such column.

Held against the same SQL over the raw events, of which the older ones have lost those columns.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pytest
from rtolap.base.errors import QueryError
from rtolap.model.cube import Measure, Revision, Schema, SegmentPolicy
from rtolap.model.evolution.older_filter import OlderFilter
from rtolap.model.table import Column
from rtolap.query.cubes import revisions
from rtolap.query.cubes.history import MemoryBounds
from rtolap.query.plan import CubeRead, ReadStats, TimeRange
from rtolap.query.spills.folder import Spills
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
from tests.support.query.oracles.mariadb_oracle import Row
from tests.support.query.oracles.sql_oracle import asked_of, oracle_cursor, rows_of
from tests.support.query.query_world import QueryWorld
from tests.support.query.random_analysis import FLIGHTS, ROUTES, AnalysisWriter, Places, rows_differ
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


def seen(world: QueryWorld, first: datetime = DAY_1) -> pa.Table:
    """Return all flights as the newest revision has them, without what the older ones do not have. `first`:
    until when statements read the first one."""
    every = QueryWorld(flights_schema(), world.events, {})
    with closing(every):
        table = every.visible()
    for place, names in ((0, ("gate", "delay")), (1, ("origin", "price"))):
        older = pa.array([at < (first, DAY_2)[place] for at in table.column("ts").to_pylist()])
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
    "select carrier, origin, gate, day_start, count(*), max(delay) from flights group by 1, 2, 3, 4 "
    "order by day_start, 1, 2, 3 limit 9",
    "select day_start, gate, count(*) from flights group by 1, 2 order by count(*) desc, 1, 2 limit 7",
    "select f.gate, count(*), sum(f.delay) from flights f join airlines a on a.carrier = f.carrier "
    "group by 1",
]


@pytest.mark.parametrize("sql", STATED)
def test_statements_see_one_cube(sql: str, asked: Asked) -> None:
    service, oracle = asked
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


@pytest.mark.parametrize("hours", [0, 12, 24])
def test_a_moment_that_moves_back_lets_each_time_be_read_once(hours: int) -> None:
    """The second revision holds what it is filled with before, and the first one goes on holding it."""
    first, second, third = revised()
    assert second.cube.revision is not None
    filling = msgspec.structs.replace(
        second.cube.revision,
        fills_from_ms=SINCE[0] - 24 * HOUR_MS,
        since_ms=SINCE[0] - hours * HOUR_MS,
        filled_at=((1, 2),),
    )
    moved = Schema(second.table, msgspec.structs.replace(second.cube, revision=filling))
    shorter = msgspec.structs.replace(first.cube, segment=second.cube.segment)  # the moment begins one of it
    whole = Schema(first.table, shorter)
    with closing(world_of(23, 240, [whole, moved, third])) as world, closing(world.service()) as service:
        held = [world.visible(name).num_rows for name in ("flights", "flights_r2")]
        assert sum(held) > sum(at < DAY_2 for at in seen(world).column("ts").to_pylist()), "both hold some"
        with oracle_cursor() as oracle:
            oracle.register("flights", seen(world, DAY_1 - timedelta(hours=hours)))
            oracle.register("airlines", AIRLINE_ROWS)
            for sql in STATED:
                assert rows_of(service.execute(sql).table()) == rows_of(asked_of(oracle, sql)), sql
        said = [
            query.at_least for _, query in world.asked if query.cube == "flights_r2" and 1 in query.at_least
        ]
        assert said, "a receiver that has not read so far waits"
        assert said[0][1] >= 2


@pytest.mark.parametrize("first", ["gone", "retired"])
def test_a_first_revision_that_has_aged_out_is_left_out(first: str) -> None:
    schemas = revised("refuse")
    if first == "gone":
        schemas = schemas[1:]
    else:
        own = schemas[0].cube.revision
        assert own is not None
        retired = msgspec.structs.replace(own, retired_ms=1)
        cube = msgspec.structs.replace(schemas[0].cube, revision=retired)
        schemas[0] = Schema(schemas[0].table, cube)
    with closing(world_of(29, 200, schemas)) as world, closing(world.service()) as service:
        whole = seen(world)
        later = whole.filter(pa.array([at >= DAY_1 for at in whole.column("ts").to_pylist()]))
        with oracle_cursor() as oracle:
            oracle.register("flights", later)
            for sql in (
                "select gate, count(*), sum(delay) from flights where ts >= '2013-01-03' group by 1",
                "select carrier, count(*), sum(distance) from flights group by 1",
                "select count(*) from flights where ts < '2013-01-02'",
            ):
                outcome = service.execute(sql)
                assert rows_of(outcome.table()) == rows_of(asked_of(oracle, sql)), sql
                assert not outcome.positions.get("flights"), "nobody is asked of it"
        with pytest.raises(QueryError, match="flights_r2"):
            service.execute("select count(*) from flights_r2")


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


def test_the_latest_rows_need_no_column_of_older_events() -> None:
    with closing(world_of(5, 240, revised("refuse"))) as made, closing(made.service()) as service:
        latest = service.execute("select * from flights order by hour_start desc limit 1").table()
        assert latest.num_rows == 1
        with pytest.raises(QueryError, match=r"no .* of events before"):
            service.execute("select * from flights where ts < '2013-01-02' limit 1")


def test_a_filter_that_no_older_row_passes_asks_nobody(world: QueryWorld, asked: Asked) -> None:
    service, _ = asked
    before = len(world.asked)
    service.execute(
        "select carrier, count(*) from flights where gate = 1 and carrier = 'AA' group by 1"
    ).table()
    assert {query.cube for _, query in world.asked[before:]} == {"flights_r2", "flights_r3"}


def renamed(function: str) -> list[Schema]:
    """Return two revisions of which the second goes on with `gate`, an int, as `wide`, a bigint."""
    whole = flights_schema()
    columns = (*whole.table.columns, Column("wide", "bigint", path="gate"))
    table = msgspec.structs.replace(whole.table, columns=columns)
    made = []
    for number, column in enumerate(("gate", "wide"), start=1):
        revision = Revision(
            "flights",
            number,
            since_ms=None if number == 1 else SINCE[0],
            until_ms=SINCE[0] if number == 1 else None,
            renamed={} if number == 1 else {"wide": "gate"},
        )
        cube = msgspec.structs.replace(
            whole.cube,
            name=f"flights{'' if number == 1 else '_r2'}",
            dimensions=("carrier",),
            aggregation_groups=(),
            measures=(
                Measure("sum", column),
                Measure("max", column),
                Measure(function, column),
            ),
            revision=revision,
        )
        made.append(Schema(table, cube))
    return made


@pytest.mark.parametrize("function", ["count_distinct", "approx_distinct"])
def test_sets_and_sketches_of_another_type_are_refused_and_numbers_go_on(function: str) -> None:
    schemas = renamed(function)
    events = random_flights(random.Random(9), 120)
    events = events.append_column("wide", events.column("gate").cast(pa.int64()))
    with (
        closing(QueryWorld(schemas[0], events, {}, schemas[1])) as made,
        closing(made.service()) as service,
        oracle_cursor() as oracle,
    ):
        oracle.register("flights", events)
        for sql in (
            "select carrier, sum(wide), max(wide) from flights group by 1",
            "select count(*), max(wide) from flights where carrier in ('AA', 'UA')",
        ):
            assert rows_of(service.execute(sql).table()) == rows_of(asked_of(oracle, sql))
        with pytest.raises(QueryError, match="does not go on with what events before"):
            service.execute("select count(distinct wide) from flights")
        later = service.execute("select count(distinct wide) from flights where ts >= '2013-01-02'").table()
        assert later.column(0).to_pylist()[0] > 0


def test_statements_that_share_rows_on_the_disk_all_have_them(tmp_path: Path) -> None:
    spills = Spills(tmp_path / "spill", 0)
    spills.clear_left()
    bounds = MemoryBounds(0, column_bytes=0, result_bytes=0, statement_bytes=1)
    sql = "select carrier, gate, count(*), sum(price) from flights group by 1, 2"
    with (
        closing(world_of(3, 400, revised())) as made,
        closing(made.service(spills=spills, bounds=bounds)) as service,
    ):
        for cube in made.schemas:
            for segment in made.segments(cube):
                if segment.name not in made.built[cube]:
                    made.build(segment, random.Random(1), cube)
        expected = rows_of(service.execute(sql).table())
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: rows_of(service.execute(sql).table()), range(80)))
    assert all(answer == expected for answer in answers)


def test_rows_that_another_statement_has_read_count_there() -> None:
    read = CubeRead(revised()[-1], "r", (), ("__rows",), None, TimeRange())
    own = ReadStats("flights", rows_read=5, statements=3)
    others = ReadStats("flights_r2", rows_read=7, statements=2, is_own=False)
    both = revisions.united(read, [own, others])
    assert (both.rows_read, both.is_own, both.statements) == (5, True, 2)
    assert not revisions.united(read, [others]).is_own
