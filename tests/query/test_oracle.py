"""Random SQL through the service equals the same SQL over the raw rows, to the last digit."""

from __future__ import annotations

import random

import duckdb
import pytest
from rtolap.base.errors import QueryError
from rtolap.query.statement_service import QueryService

from tests.support.query.oracles.sql_oracle import asked_of, rows_of
from tests.support.query.query_world import QueryWorld
from tests.support.seeds import so_many

QUERIES = so_many(60)
KEYS = [
    "carrier",
    "origin",
    "gate",
    "fare_class",
    "flown_on",
    "hour_start",
    "day_start",
    "date_trunc('day', ts)",
    "date_trunc('month', ts)",
    "date(ts)",
    "hour(ts)",
    "coalesce(origin, '?')",
    "gate * 2 + 1",
    "case when carrier = 'AA' then 'x' else origin end",
]
AGGREGATES = [
    "count(*)",
    "count(delay)",
    "count(carrier)",
    "sum(delay)",
    "sum(price)",
    "sum(distance)",
    "avg(delay)",
    "avg(price)",
    "avg(weight)",
    "min(delay)",
    "max(delay)",
    "max(price)",
    "count(distinct carrier)",
    "count(distinct gate, origin)",
    "count(distinct delay)",
    "count(distinct price)",
    "count(distinct case when gate > 0 then price end)",
    "count(distinct delay) filter (where origin = 'EWR')",
    "sum(gate)",
    "avg(gate)",
    "sum(fare_class)",
    "min(fare_class)",
    "max(carrier)",
    "sum(distinct gate)",
    "sum(gate = 1)",
    "sum(case when origin = 'JFK' then delay else 0 end)",
    "sum(if(gate > 0, price, null))",
    "count(case when gate > 0 then delay end)",
    "max(case when origin = 'LGA' then delay end)",
    "avg(case when carrier = 'UA' then delay end)",
    "sum(delay * 2 + 1)",
    "sum(coalesce(delay, 0))",
    "sum(coalesce(delay, 7))",
    "sum(-delay)",
    "sum(delay * gate)",
    "count(*) filter (where origin = 'EWR')",
    "sum(delay) filter (where gate is null or gate < 1)",
]
CONDITIONS = [
    "carrier = 'AA'",
    "carrier <> 'AA'",
    "carrier in ('AA', 'DL', 'nope')",
    "carrier not in ('AA')",
    "carrier is null",
    "origin is not null",
    "origin like 'J%'",
    "origin not like '%A'",
    "gate between -1 and 1",
    "gate > 0.5",
    "gate >= 1 or carrier = 'UA'",
    "not (gate = 1 or origin = 'JFK')",
    "fare_class < 1.25",
    "fare_class = 0",
    "flown_on >= '2013-01-02'",
    "flown_on = date '2013-01-03'",
    "ts >= '2013-01-02'",
    "ts < '2013-01-02 12:00:00'",
    "ts between '2013-01-01 06:00:00' and '2013-01-03 05:59:59.999999'",
    "hour_start >= '2013-01-02 03:30:00'",
    "hour_start < timestamp '2013-01-02 03:30:00'",
    "day_start = '2013-01-02'",
    "day_start in ('2013-01-01', '2013-01-03')",
    "date(ts) <= '2013-01-02'",
    "hour(ts) in (3, 4)",
    "gate + 1 > 1",
    "carrier = 'é''\"%_'",
    "origin < carrier",
    "day_start > cast('2013-01-01' as datetime) + interval 12 hour",
    "carrier in (select carrier from airlines)",
]


def random_query(rng: random.Random) -> str:
    keys = rng.sample(KEYS, rng.choice([0, 1, 1, 2, 3]))
    aggregates = rng.sample(AGGREGATES, rng.randint(1, 4))
    columns = [f"{key} as k{i}" for i, key in enumerate(keys)]
    columns += [f"{aggregate} as a{i}" for i, aggregate in enumerate(aggregates)]
    conditions = rng.sample(CONDITIONS, rng.choice([0, 1, 1, 2, 3]))
    sql = f"select {', '.join(columns)} from flights"
    if conditions:
        sql += " where " + " and ".join(f"({c})" for c in conditions)
    if keys:
        sql += " group by " + ", ".join(f"k{i}" for i in range(len(keys)))
        if rng.random() < 0.3:
            sql += " having count(*) > 2"
    return sql


@pytest.mark.seeded
@pytest.mark.parametrize("block", range(6))
def test_random_queries_equal_the_raw_rows(
    block: int, service: QueryService, oracle: duckdb.DuckDBPyConnection
) -> None:
    rng = random.Random(1000 + block)
    for number in range(QUERIES // 6):
        sql = random_query(rng)
        got = rows_of(service.execute(sql).table())
        expected = rows_of(asked_of(oracle, sql))
        assert got == expected, f"seed {1000 + block}, query {number}: {sql}"


@pytest.mark.parametrize(
    "sql",
    [
        "select a.name, count(*) n, sum(f.delay) s from flights f join airlines a on f.carrier = a.carrier "
        "group by a.name having count(*) > 1 order by n desc limit 3",
        "select a.carrier, count(f.origin) n, count(*) m from airlines a left join flights f "
        "on a.carrier = f.carrier group by a.carrier",
        "with x as (select carrier, day_start d, count(*) n from flights group by carrier, day_start) "
        "select carrier, max(n), (select sum(n) from x) from x group by carrier",
        "select carrier, count(*), sum(count(*)) over () total, rank() over (order by count(*) desc) r "
        "from flights group by carrier",
        "select (select count(*) from flights where gate = 1) a, "
        "(select count(*) from flights where gate = 2) b",
        "select distinct origin from flights where carrier = 'AA' union select name from airlines",
        "select a.carrier, (select count(*) from flights f where f.carrier = a.carrier) n from airlines a",
        "select name from airlines a where exists (select 1 from flights f where f.carrier = a.carrier)",
        "select x.n + 1 from (select count(*) n from flights where carrier = 'none') x",
        "select carrier, origin, count(*) from flights group by rollup (carrier, origin)",
        "select carrier, origin, grouping(carrier) a, grouping(carrier, origin) b, count(*) from flights "
        "group by rollup (carrier, origin)",
        "select carrier, gate, grouping(gate) g, sum(delay) from flights group by cube (carrier, gate)",
        "select carrier, gate, grouping(gate) g, count(*) from flights "
        "group by grouping sets ((carrier), (gate, carrier), ())",
        "select if(grouping(carrier), 'all', carrier) c, sum(delay) from flights "
        "group by rollup (carrier) having grouping(carrier) = 1 or sum(delay) > 10",
        "select grouping(carrier) g, rank() over (partition by grouping(carrier) order by count(*)) r "
        "from flights group by rollup (carrier)",
        "select carrier, group_concat(distinct origin order by origin desc separator '-') from flights "
        "group by carrier",
        "select carrier, group_concat(origin order by origin) from flights group by carrier",
        "select hour_start, group_concat(origin order by origin desc separator '') from flights group by 1",
        "select group_concat(carrier, '/', gate order by carrier, gate separator ';') t from flights",
        "select carrier, group_concat(gate order by gate) filter (where origin = 'JFK') from flights "
        "group by carrier",
        "select group_concat(upper(carrier) order by carrier) from flights where 1 = 0",
        "select any_value(carrier), count(*) from flights where carrier = 'AA'",
        "select origin || '-' || carrier k, count(*) from flights group by 1",
        "select count(*) from flights where 1 = 0",
        "select count(*) from flights where hour_start < now() and day_start <= curdate()",
        "select count(*) from flights where hour_start > utc_timestamp() - interval 1 day",
        "select count(*), sum(delay), min(delay), avg(price) from flights where carrier = 'none'",
    ],
)
def test_joins_subqueries_and_windows_equal_the_raw_rows(
    sql: str, service: QueryService, oracle: duckdb.DuckDBPyConnection
) -> None:
    assert rows_of(service.execute(sql).table()) == rows_of(asked_of(oracle, sql))


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("select grouping(carrier) from flights", "expected a GROUP BY; found `flights`.`carrier`"),
        ("select grouping(gate) from flights group by rollup (carrier)", "expected `flights`.`carrier`"),
        ("select any_value(delay) from flights", "does not keep column 'delay' as a dimension"),
        ("select group_concat(delay) from flights", "cannot answer GROUP_CONCAT"),
        ("select group_concat(distinct delay) from flights", "the measure is not declared"),
    ],
)
def test_what_does_not_follow_from_groups_is_refused(sql: str, said: str, service: QueryService) -> None:
    with pytest.raises(QueryError, match=said):
        service.execute(sql)


def test_parameters_are_bound_and_pushed_down(service: QueryService, world: QueryWorld) -> None:
    sql = "select count(*) from flights where carrier = ? and gate >= ? and ts >= ? limit ?"
    bound = service.execute(sql, ["AA", 0, "2013-01-02", 5]).table()
    written = "select count(*) from flights where carrier = 'AA' and gate >= 0 and ts >= '2013-01-02'"
    assert rows_of(bound) == rows_of(service.execute(written).table())
    assert world.asked[-1][1].filter is not None


def test_approximate_distinct_is_close_and_the_same_for_every_grouping(service: QueryService) -> None:
    whole = service.execute("select count(distinct passenger) n from flights").table().to_pylist()[0]["n"]
    again = (
        service.execute("select approx_count_distinct(passenger) n from flights").table().to_pylist()[0]["n"]
    )
    assert whole == again
    assert abs(whole - 390) < 40
