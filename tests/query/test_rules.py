"""SQL in, SQL over partials out: fixture pairs; and what is pushed down beside it."""

from __future__ import annotations

import pytest
from rtolap.model.predicate import And, Compare, In, Like
from rtolap.query.catalogue import QueryCatalogue
from rtolap.query.engine import EmbeddedEngine
from rtolap.query.plan import Rewritten
from rtolap.query.sql.folding import fold
from rtolap.query.sql.parser import parse
from rtolap.query.sql.rules import Context, rewrite

from tests.support.query.query_world import QueryWorld

PAIRS = [
    (
        "select count(*) from flights",
        'SELECT CAST(COALESCE(SUM("flights"."__rows"), 0) AS BIGINT) AS "count(*)" '
        'FROM "__relation_flights" AS "flights"',
    ),
    (
        "select max(delay) m from flights f where f.carrier = 'AA'",
        'SELECT MAX("f"."delay__max") AS "m" FROM "__relation_flights" AS "f"',
    ),
    (
        "select sum(case when gate = 1 then delay end) s from flights",
        'SELECT SUM(CASE WHEN "flights"."gate" = 1 THEN "flights"."delay__sum" END) AS "s" '
        'FROM "__relation_flights" AS "flights"',
    ),
    (
        "select carrier, price from flights where flown_on > '2013-01-02' - interval 1 day",
        'SELECT "flights"."carrier" AS "carrier", SUM("flights"."price__sum") AS "price" '
        'FROM "__relation_flights" AS "flights" GROUP BY "flights"."carrier"',
    ),
    (
        "select now() n, count(distinct curdate()) c",
        'SELECT CAST(CURRENT_TIMESTAMP AS TIMESTAMP) AS "n", '
        'COUNT(DISTINCT CAST(CAST(CURRENT_TIMESTAMP AS TIMESTAMP) AS DATE)) AS "c"',
    ),
    (
        "select date_trunc('day', ts) d, min(gate) g from flights group by d",
        'SELECT "flights"."day_start" AS "d", MIN("flights"."gate") AS "g" '
        'FROM "__relation_flights" AS "flights" GROUP BY "flights"."day_start"',
    ),
]


def rewritten(sql: str, world: QueryWorld, engine: EmbeddedEngine) -> Rewritten:
    session = engine.session()
    catalogue = QueryCatalogue(cubes={"flights": world.schema})
    try:
        return rewrite(parse(sql).tree, Context(catalogue, lambda tree: fold(session.value, tree, {})))
    finally:
        session.close()


@pytest.mark.parametrize(("sql", "expected"), PAIRS)
def test_pairs(sql: str, expected: str, world: QueryWorld, engine: EmbeddedEngine) -> None:
    assert rewritten(sql, world, engine).sql == expected


def test_conditions_become_a_filter_and_a_range_of_time(world: QueryWorld, engine: EmbeddedEngine) -> None:
    read = rewritten(
        "select count(*) from flights where ts >= '2013-01-02' and carrier in ('AA') "
        "and origin not like 'J%'",
        world,
        engine,
    ).reads[0]
    assert read.filter == And(
        (
            Compare("day_start", "ge", "2013-01-02 00:00:00.000000"),
            In("carrier", ("AA",)),
            Like("origin", "J%", negated=True),
        )
    )
    assert (read.time.start_ms, read.time.end_ms) == (1_357_084_800_000, None)
    assert read.dimensions == ()
