"""EXPLAIN plans and asks nobody to compute; EXPLAIN ANALYZE runs the statement and says what it did."""

from __future__ import annotations

import json

import pytest
from rtolap.base.errors import QueryError
from rtolap.query.statement_service import QueryService

from tests.support.query.query_world import QueryWorld

CHANGES_WORLD = True

SQL = (
    "select carrier, count(*) n from flights where ts >= '2013-01-02' and gate = 1 group by carrier "
    "order by n desc limit 2"
)


def explained(service: QueryService, sql: str, *values: object) -> dict[str, str]:
    outcome = service.execute(sql, values)
    return {row["item"]: row["value"] for row in outcome.table().to_pylist()}


def test_explain_names_everything_and_computes_nothing(world: QueryWorld, service: QueryService) -> None:
    before = len(world.asked)
    rows = explained(service, f"explain {SQL}")
    assert len(world.asked) == before, "no receiver was asked for partials"
    assert rows["cube"] == "flights"
    assert (rows["dimensions"], rows["partials"]) == ("carrier", "__rows")
    assert "gate" in rows["pushed filter"]
    base = "+".join(world.schema.cube.all_dimensions)
    in_range = {name for name in world.built["flights"] if name >= "20130102"}
    assert rows["cuboid"] == f"{base} ({len(in_range)} segments)"
    assert set(rows["history segments"].split(", ")) == in_range
    assert set(rows["pruned segments"].split(", ")) == world.built["flights"] - in_range
    assert rows["receivers"].count("rs-") >= 4
    assert int(rows["rows read (estimate)"]) > 0
    assert int(rows["real-time events (at most)"]) > 0
    assert "positions" not in rows
    assert rows["sql"].startswith("SELECT")


def test_the_cuboids_that_receivers_have_read_are_named(world: QueryWorld, service: QueryService) -> None:
    assert explained(service, f"explain analyze {SQL}")["real-time cuboids"] == "none"
    world.cuboids = {"carrier": 3, "_all": 1}
    rows = explained(service, f"explain analyze {SQL}")
    sets = len(rows["receivers"].split(", "))
    assert rows["real-time cuboids"] == f"_all ({sets} tables), carrier ({3 * sets} tables)"


def test_its_estimate_is_what_is_then_read(world: QueryWorld, service: QueryService) -> None:
    planned, done = explained(service, f"explain {SQL}"), explained(service, f"explain analyze {SQL}")
    for same in (
        "cube",
        "cuboid",
        "history segments",
        "pruned segments",
        "real-time segments",
        "receivers",
        "sql",
    ):
        assert planned[same] == done[same]
    # Statistics know the smallest and largest value, memory all that occur.
    assert int(planned["rows pruned (estimate)"]) <= int(done["rows pruned"])
    # The receivers of this world scan the events of all their partitions once each.
    live = set(done["real-time segments"].split(", "))
    assert int(planned["real-time events (at most)"]) == world.events_of(live).num_rows
    history = int(done["rows read"]) - 2 * world.events_of(live).num_rows
    assert int(planned["rows read (estimate)"]) >= history > 0


def test_analyze_says_what_was_done(world: QueryWorld, service: QueryService) -> None:
    before = len(world.asked)
    rows = explained(service, f"explain analyze {SQL}")
    assert len(world.asked) == before + 2
    assert rows["result rows"] == "2"
    assert json.loads(rows["positions"]) == {str(p): offset for p, offset in world.positions.items()}
    assert int(rows["partial rows"]) > 0
    assert 0 < float(rows["fetch ms"]) <= float(rows["elapsed ms"])


def test_a_dead_receiver_is_seen_in_the_plan(world: QueryWorld, service: QueryService) -> None:
    world.dead = {"rs-a-1", "rs-a-2", "rs-b-2"}
    try:
        receivers = explained(service, f"explain {SQL}")["receivers"]
    finally:
        world.dead = set()
    assert "rs-a: nobody (rs-a-1: rs-a-1 is down; rs-a-2: rs-a-2 is down)" in receivers
    assert "rs-b: rs-b-1" in receivers


def test_explain_refuses_what_would_be_refused(service: QueryService) -> None:
    with pytest.raises(QueryError, match="unknown column"):
        service.execute("explain select sum(nope) from flights")
    with pytest.raises(QueryError, match="no_such_function"):
        service.execute("explain select no_such_function(count(*)) from flights")


def test_parameters_and_previews_are_planned_too(service: QueryService) -> None:
    rows = explained(service, "explain select * from flights where carrier = ? limit ?", "AA", 3)
    assert '"AA"' in rows["pushed filter"]
    assert rows["latest first"] == "by hour_start, until there are 3 rows"


def test_explain_is_described_before_it_is_run(service: QueryService) -> None:
    schema, statement = service.describe(f"explain analyze {SQL.replace('1', '?', 0)}")
    assert schema.names == ["item", "value"]
    assert statement.parameters == ()
