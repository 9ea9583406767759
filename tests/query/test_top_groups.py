"""ORDER BY an aggregate with a LIMIT: a receiver that alone has all events chooses the groups."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing

import pytest
from rtolap.cubes.receiver.answers import top_groups
from rtolap.protocols.receiver.messages import TopGroups
from rtolap.query.statement_service import QueryService

from tests.support.cubes.flights import AIRLINES, AIRLINES_CSV, flights_schema, random_flights, routes_schema
from tests.support.query import query_world
from tests.support.query.oracles.sql_oracle import asked_of, open_oracle, rows_of
from tests.support.query.query_world import QueryWorld

ORDERED = {
    "select carrier, count(*) n from flights group by carrier order by n desc limit 2":
        TopGroups("__rows", True, False, 2),
    "select hour_start, sum(delay) s from flights group by hour_start order by s desc, hour_start limit 3":
        TopGroups("delay__sum", True, False, 3),
    "select hour_start, sum(delay) from flights group by 1 order by 2, 1 limit 3 offset 4":
        TopGroups("delay__sum", False, True, 7),
    "select hour_start, max(price) p from flights where gate > 0 group by 1 order by p desc, 1 limit 4":
        TopGroups("price__max", True, False, 4),
    "select hour_start, count(delay) c from flights group by 1 order by c, hour_start desc limit 5":
        TopGroups("delay__count", False, True, 5),
    # every group is needed, or another order
    "select hour_start, sum(delay) s from flights group by 1 having s > 3 order by s desc, 1 limit 2": None,
    "select hour_start, avg(price) p from flights group by 1 order by p desc, 1 limit 2": None,
    "select hour_start, sum(delay) s from flights group by 1 order by s + 1 desc, 1 limit 2": None,
    "select hour_start, carrier, count(*) n from flights group by 1, 2 order by n desc, 1, 2 limit 2": None,
    "select hour_start, sum(delay) s from flights group by 1 order by hour_start limit 2": None,
    "select hour_start, sum(delay) s from flights group by 1 order by s desc, 1": None,
    "select s from (select hour_start, sum(delay) s from flights group by 1) x order by 1 limit 2": None,
}  # fmt: skip


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[QueryWorld]:
    """A world of one replica set, and without history."""
    monkeypatch.setattr(query_world, "_ASSIGNMENT", {"rs-a": (0, 1, 2, 3)})
    monkeypatch.setattr(top_groups, "GROUPS_MIN", 0)
    events = random_flights(random.Random(3), 400)
    lookups = {"airlines": (AIRLINES, AIRLINES_CSV)}
    with closing(QueryWorld(flights_schema(), events, lookups, routes_schema())) as world:
        yield world


@pytest.mark.parametrize("sql", ORDERED)
def test_a_receiver_alone_chooses_the_groups_and_the_answer_is_that_of_all(
    sql: str, alone: QueryWorld
) -> None:
    with closing(alone.service()) as service, open_oracle(alone) as oracle:
        got = service.execute(sql).table()
        assert got.num_rows > 0
        assert rows_of(got) == rows_of(asked_of(oracle, sql))
        assert alone.asked[-1][1].top == ORDERED[sql]
        shown = service.execute(f"explain analyze {sql}").table().to_pylist()
        chosen = [row["value"] for row in shown if row["item"] == "groups"]
        assert chosen == (["the first alone, chosen by the receiver"] if ORDERED[sql] else [])


def test_bound_limits_are_parts_of_the_question(alone: QueryWorld) -> None:
    sql = "select hour_start, sum(delay) s from flights group by 1 order by s desc, 1 limit ? offset ?"
    with closing(alone.service()) as service:
        for limit, offset in ((2, 0), (5, 3)):
            assert service.execute(sql, (limit, offset)).table().num_rows == limit
            assert alone.asked[-1][1].top == TopGroups("delay__sum", True, False, limit + offset)


def test_no_receiver_of_several_chooses_alone(world: QueryWorld, service: QueryService) -> None:
    before = len(world.asked)
    for sql in ORDERED:
        service.execute(sql).close()
    assert all(query.top is None or query.top.spread for _, query in world.asked[before:])
