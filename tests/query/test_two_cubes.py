"""Several cubes in one statement: each aggregated in a SELECT of its own; a raw join is refused."""

from __future__ import annotations

import duckdb
import pytest
from rtolap.base.errors import QueryError
from rtolap.query.statement_service import QueryService

from tests.support.query.query_world import QueryWorld
from tests.support.query.sql_oracle import asked_of, rows_of

JOINED = [
    "select f.carrier, f.n, r.d from (select carrier, count(*) n from flights group by carrier) f "
    "join (select carrier, sum(distance) d from routes group by carrier) r on f.carrier = r.carrier",
    "with f as (select day_start d, origin o, sum(delay) s from flights where gate > 0 group by 1, 2), "
    "r as (select day_start d, origin o, max(delay) m, count(*) n from routes group by 1, 2) "
    "select f.d, f.o, s, m, n, s / n from f left join r on f.d = r.d and f.o = r.o",
    "select r.carrier, r.n, (select count(*) from flights f where f.carrier = r.carrier and gate = 1) j "
    "from (select carrier, count(*) n from routes where origin = 'JFK' group by carrier) r",
    "select (select sum(distance) from flights) - (select sum(distance) from routes) difference",
    "select count(*), 'f' w from flights union all select count(*), 'r' from routes union all "
    "select count(*), 'a' from airlines",
    "select carrier, count(*) from flights where carrier in "
    "(select carrier from routes where origin = 'LGA') group by carrier",
    "with r as (select carrier c, count(*) n from routes group by 1) select a.name, r.n, x.n from airlines a "
    "left join r on r.c = a.carrier "
    "left join (select carrier c, count(*) n from flights group by 1) x on x.c = r.c",
    # A cube with itself.
    "select a.carrier, a.n, b.n from (select carrier, count(*) n from flights where gate = 1 group by 1) a "
    "join (select carrier, count(*) n from flights where gate <> 1 group by 1) b on a.carrier = b.carrier",
    "with d as (select day_start d, count(*) n from flights group by 1) select x.d, x.n - y.n grown "
    "from d x join d y on x.d = y.d + interval 1 day",
]  # fmt: skip


@pytest.mark.parametrize("sql", JOINED)
def test_cubes_aggregated_apart_and_joined_equal_the_raw_rows(
    sql: str, service: QueryService, oracle: duckdb.DuckDBPyConnection
) -> None:
    got = service.execute(sql).table()
    assert got.num_rows > 0
    assert rows_of(got) == rows_of(asked_of(oracle, sql))


def test_each_cube_is_fetched_once_and_states_its_positions(world: QueryWorld, service: QueryService) -> None:
    before = len(world.asked)
    outcome = service.execute(JOINED[0])
    assert outcome.positions == {"flights": world.positions, "routes": world.positions}
    outcome.close()
    asked = [(query.cube, receiver[:4]) for receiver, query in world.asked[before:]]
    assert sorted(asked) == [(cube, rs) for cube in ("flights", "routes") for rs in ("rs-a", "rs-b")]


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("select count(*) from flights f join routes r on f.carrier = r.carrier", "flights and routes"),
        ("select count(*) from flights f, routes r where f.carrier = r.carrier", "flights and routes"),
        ("select a.carrier, sum(b.delay) from flights a join flights b on a.gate = b.gate group by 1",
         "flights and flights"),
        ("select f.carrier, r.origin from flights f join routes r on f.carrier = r.carrier limit 3",
         "flights and routes"),
    ],
)  # fmt: skip
def test_a_raw_join_of_cubes_names_the_way(sql: str, named: str, service: QueryService) -> None:
    with pytest.raises(QueryError, match=f"reads {named}.*aggregate each cube in a subquery"):
        service.execute(sql)
