"""SELECT without aggregates: roll-up rows equal a recount, and no more is read than is needed."""

from __future__ import annotations

import duckdb
import pytest
from rtolap.base.errors import QueryError
from rtolap.query.statement_service import QueryService

from tests.support.query.oracles.sql_oracle import asked_of, rows_of
from tests.support.query.query_world import QueryWorld

KEYS = "hour_start, day_start, carrier, origin, gate, fare_class, flown_on, on_time"
STAR = (
    f"select {KEYS}, count(*), sum(delay), count(delay), min(delay), max(delay), avg(price), max(price), "
    f"sum(distance), avg(weight), min(ts), max(ts), count(distinct delay), "
    f"count(distinct price) from flights %s group by {KEYS}"
)


@pytest.mark.parametrize(
    "condition", ["", "where carrier = 'AA' and gate > 0", "where hour(ts) = 3 or gate + 1 = 2"]
)
def test_a_star_shows_all_dimensions_and_all_measures(
    condition: str, service: QueryService, oracle: duckdb.DuckDBPyConnection
) -> None:
    table = service.execute(f"select * from flights {condition}").table()
    assert table.column_names == [
        *KEYS.split(", "),
        *("COUNT(*)", "SUM(delay)", "COUNT(delay)", "MIN(delay)", "MAX(delay)", "AVG(price)", "MAX(price)"),
        *("SUM(distance)", "AVG(weight)", "MIN(ts)", "MAX(ts)", "APPROX_COUNT_DISTINCT(passenger)"),
        *("COUNT(DISTINCT delay)", "COUNT(DISTINCT price)"),
    ]
    assert table.num_rows > 0
    exact = table.drop_columns(["APPROX_COUNT_DISTINCT(passenger)"])
    assert rows_of(exact) == rows_of(asked_of(oracle, STAR % condition))


@pytest.mark.parametrize(
    ("shown", "recounted"),
    [
        ("select carrier, delay from flights", "select carrier, sum(delay) from flights group by 1"),
        ("select price, weight from flights", "select sum(price), sum(weight) from flights"),
        (
            "select f.origin as o, f.delay as d from flights f where f.gate = 1 order by d desc, o limit 2",
            "select origin, sum(delay) from flights where gate = 1 group by 1 order by 2 desc, 1 limit 2",
        ),
        (
            "select date(ts) as d, coalesce(origin, '?') as o, distance from flights",
            "select date(ts), coalesce(origin, '?'), sum(distance) from flights group by 1, 2",
        ),
        ("select carrier, 7 as seven from flights", "select carrier, 7 from flights group by 1"),
        (
            "select f.*, a.name from routes f join airlines a on a.carrier = f.carrier",
            "select f.day_start, f.month_start, f.origin, f.carrier, count(*), sum(distance), max(delay), "
            "a.name from routes f join airlines a on a.carrier = f.carrier "
            "group by f.day_start, f.month_start, f.origin, f.carrier, a.name",
        ),
        (
            "select * from airlines a left join routes f on a.carrier = f.carrier and f.origin = 'JFK'",
            "select a.carrier, a.name, f.day_start, f.month_start, f.origin, f.carrier, count(*), "
            "sum(distance), max(delay) from airlines a left join routes f on a.carrier = f.carrier "
            "and f.origin = 'JFK' "
            "group by a.carrier, a.name, f.day_start, f.month_start, f.origin, f.carrier",
        ),
        ("select carrier, max(n) from (select carrier, day_start, count(*) n from flights group by 1, 2) "
         "group by carrier",) * 2,
    ],
)  # fmt: skip
def test_named_columns_are_grouped_and_measures_stand_for_their_aggregate(
    shown: str, recounted: str, service: QueryService, oracle: duckdb.DuckDBPyConnection
) -> None:
    got = service.execute(shown).table()
    assert got.num_rows > 0
    assert rows_of(got) == rows_of(asked_of(oracle, recounted))


@pytest.mark.parametrize("limit", [1, 7, 150, 100_000])
@pytest.mark.parametrize("order", ["", " order by hour_start desc"])
def test_with_a_limit_every_row_shown_is_whole(
    order: str, limit: int, service: QueryService, oracle: duckdb.DuckDBPyConnection
) -> None:
    columns = "select hour_start, carrier, sum(delay) delay from flights group by 1, 2"
    whole = asked_of(oracle, columns)
    got = service.execute(f"select hour_start, carrier, delay from flights{order} limit {limit}").table()
    assert got.num_rows == min(limit, whole.num_rows)
    shown = set(rows_of(got))
    assert len(shown) == got.num_rows
    assert shown <= set(rows_of(whole))
    if order:
        latest = asked_of(oracle, f"select hour_start h from ({columns}) t order by 1 desc limit {limit}")
        assert got.column("hour_start").to_pylist() == latest.column("h").to_pylist()


def test_a_preview_reads_the_latest_segments_only(world: QueryWorld, service: QueryService) -> None:
    few = service.execute("select * from flights limit 5")
    more = service.execute("select * from flights limit ? offset 100", [100])
    all_of_them = service.execute("select * from flights")
    read = [len(outcome.stats[0].history_segments) for outcome in (few, more, all_of_them)]
    assert read[0] < read[1] < read[2] == len(world.built["flights"])
    assert few.stats[0].positions == world.positions
    assert (few.table().num_rows, more.table().num_rows) == (5, 100)
    all_of_them.close()


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("select count(*) from (select carrier, delay from flights) t", "outermost SELECT only"),
        ("with t as (select * from flights) select avg(delay) from t", "keeps no single events"),
        ("select carrier from flights union all select origin from flights", "outermost SELECT only"),
        ("select delay * 2 from flights", "SUM"),
        ("select 1 from flights", "keeps no single events"),
        ("select carrier from flights order by gate", "column of the SELECT list"),
        ("select carrier, ts from flights", "keeps the event time as hour_start, day_start"),
        ("select carrier, row_number() over (order by carrier) from flights", "window"),
        ("select * from flights join airlines using (carrier)", "USING"),
        ("select carrier, (select max(name) from airlines) from flights", "subquery beside"),
        ("select carrier, delay from flights where delay > 3", "delay"),
    ],
)
def test_where_roll_up_rows_would_mislead_there_is_an_error(
    sql: str, words: str, service: QueryService
) -> None:
    with pytest.raises(QueryError, match=words):
        service.execute(sql)
