"""Several cubes in one statement: each aggregated in a SELECT of its own, or joined event by event."""

from __future__ import annotations

import duckdb
import pytest
from rtolap.base.errors import QueryError
from rtolap.model.predicate import And, Compare
from rtolap.query.statement_service import QueryService

from tests.support.query.oracles.sql_oracle import asked_of, rows_of
from tests.support.query.query_world import QueryWorld

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


# Each pair of an event of one cube and an event of the other, as SQL has it: no aggregate first.
PAIRS = [
    "select count(*) from flights f join routes r on f.carrier = r.carrier",
    "select count(*) from flights f, routes r where f.carrier = r.carrier and f.gate = 1 and "
    "r.origin = 'JFK'",
    "select count(*), sum(f.delay), avg(f.delay) from flights f cross join routes r",
    "select f.carrier, sum(r.distance), count(r.carrier), sum(f.gate), avg(f.delay), max(f.delay) "
    "from flights f join routes r on f.carrier = r.carrier group by 1",
    "select f.carrier, sum(f.price), sum(f.weight), avg(f.price), max(f.price), count(f.delay) from "
    "flights f "
    "join routes r on f.carrier = r.carrier and f.day_start = r.day_start and r.origin = 'JFK' group by 1",
    "select f.carrier, count(*), count(r.carrier), sum(f.delay), sum(r.distance) from flights f left join "
    "routes r on f.carrier = r.carrier and f.origin = r.origin and r.origin = 'JFK' and f.gate = 2 "
    "group by 1",
    "select r.carrier, count(*), sum(f.delay), count(f.delay) from flights f right join routes r "
    "on f.carrier = r.carrier and f.gate = 1 group by 1",
    "select coalesce(r.carrier, f.carrier) c, count(*), sum(f.delay), sum(r.distance) from flights "
    "f full join "
    "routes r on f.carrier = r.carrier and f.gate = 1 and r.origin = 'LGA' group by 1",
    "select f.carrier, count(*) from flights f left join routes r on f.carrier = r.carrier "
    "where r.carrier is null group by 1",
    "select a.carrier, sum(b.delay) from flights a join flights b on a.gate = b.gate group by 1",
    "select a.carrier, sum(b.delay * a.gate), sum(b.delay + a.gate), sum(coalesce(b.delay, 1)), "
    "count(distinct b.origin) from flights a join flights b on a.gate = b.gate where a.origin = "
    "'JFK' group by 1",
    "select distinct f.carrier, r.origin from flights f join routes r on f.carrier = r.carrier",
    "select sum(case when r.origin = 'JFK' then f.delay else 0 end), count(if(f.gate > 0, 1, null)) "
    "from flights f join routes r on f.carrier = r.carrier",
    "select sum(f.delay) filter (where r.origin = 'JFK') from flights f join routes r on f.carrier "
    "= r.carrier",
    "select count(*), sum(r.distance) from flights f join routes r on f.carrier = r.carrier "
    "join airlines a on a.carrier = f.carrier where a.name like '%l%'",
    "select count(*), sum(f.delay) from flights f join routes r on f.carrier = r.carrier "
    "where f.ts >= '2013-01-02' and r.ts < '2013-01-03'",
    "select f.carrier, r.carrier c, count(*) from flights f join routes r on f.gate > 1 and r.origin = 'JFK' "
    "group by 1, 2",
    "select f.carrier, count(*) n, rank() over (order by count(*) desc) from flights f join routes r "
    "on f.carrier = r.carrier group by 1 having sum(r.distance) is not null",
    "select x.c, x.n, y.n from (select f.carrier c, count(*) n from flights f join routes r using (carrier) "
    "group by 1) x join (select carrier c, count(*) n from flights group by 1) y on x.c = y.c",
    # which values exist, and not how often
    "select carrier, origin from flights union select carrier, origin from routes where origin = 'JFK'",
    "select carrier from flights except select carrier from airlines",
    "select carrier from flights intersect select carrier from routes",
    "select carrier, count(*) from flights where gate > any (select day(day_start) from routes) group by 1",
    "select count(*) from flights f where not exists "
    "(select 1 from routes r where r.carrier = f.carrier and r.origin = f.origin)",
    "select count(*) from flights where (carrier, origin) in (select carrier, origin from routes)",
]  # fmt: skip


@pytest.mark.parametrize("sql", PAIRS)
def test_a_join_of_cubes_counts_every_pair_of_events(
    sql: str, service: QueryService, oracle: duckdb.DuckDBPyConnection
) -> None:
    got = service.execute(sql).table()
    assert got.num_rows > 0
    assert rows_of(got) == rows_of(asked_of(oracle, sql))


def test_terms_of_a_join_go_to_the_cube_that_they_are_about(world: QueryWorld, service: QueryService) -> None:
    def filters(sql: str) -> dict[str, object]:
        """Return the filter of each cube, without sets of values of the other one."""
        before = len(world.asked)
        service.execute(sql).close()
        found = {query.cube: query.filter for _, query in world.asked[before:]}
        return {cube: each.terms[0] if isinstance(each, And) else each for cube, each in found.items()}

    on = "f.carrier = r.carrier and f.gate = 1 and r.origin = 'JFK'"
    gate, origin = Compare("gate", "eq", 1), Compare("origin", "eq", "JFK")
    inner = filters(f"select count(*) from flights f join routes r on {on}")
    assert inner == {"flights": gate, "routes": origin}
    left = filters(f"select count(*) from flights f left join routes r on {on}")
    assert left == {"flights": None, "routes": origin}
    right = filters(f"select count(*) from flights f right join routes r on {on}")
    assert right == {"flights": None, "routes": None}


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("select f.carrier, r.origin from flights f join routes r on f.carrier = r.carrier limit 3",
         "roll-up rows of flights and routes.*group by the columns"),
        ("select sum(f.delay * r.distance) from flights f join routes r on f.carrier = r.carrier",
         "single events of flights and routes.*aggregate each cube in a subquery"),
        ("select stddev(f.delay) from flights f join routes r on f.carrier = r.carrier",
         "over a join of flights and routes counts each value.*aggregate each cube in a subquery"),
        ("select count(*) from flights f join routes r on f.ts = r.ts", "keeps the event time as"),
        ("select carrier from flights union all select carrier from routes", "keeps no single events"),
    ],
)  # fmt: skip
def test_what_needs_single_events_of_two_cubes_names_the_way(
    sql: str, named: str, service: QueryService
) -> None:
    with pytest.raises(QueryError, match=named):
        service.execute(sql)
