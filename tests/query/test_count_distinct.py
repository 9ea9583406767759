"""COUNT(DISTINCT x) of cubes: exact where a measure says so, from a sketch where none does, and never wrong
where there are too many values."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import msgspec
import pytest
from rtolap.base.errors import OutOfRange, QueryError
from rtolap.model.cube import Measure, Schema
from rtolap.query.catalogue import QueryCatalogue
from rtolap.query.described import described
from rtolap.query.mysql.codes import error_code
from rtolap.query.statement_service import QueryService

from tests.support.cubes.flights import flights_schema, random_flights
from tests.support.query.query_world import QueryWorld

SEED = 640
EXACT, SKETCHED = "passenger__value_set", "passenger__hll"
OTHERS = (Measure("count"), Measure("sum", "delay"))
SQL = "select carrier, {call} n from flights group by carrier order by carrier"


def schema_of(*measures: Measure) -> Schema:
    schema = flights_schema()
    cube = msgspec.structs.replace(schema.cube, measures=(*OTHERS, *measures))
    return Schema(schema.table, cube)


@contextlib.contextmanager
def asked(*measures: Measure) -> Iterator[tuple[QueryWorld, QueryService]]:
    """A cube of flights with these measures, some of its segments built."""
    rng = random.Random(SEED)
    with contextlib.closing(QueryWorld(schema_of(*measures), random_flights(rng, 400), {})) as world:
        for segment in world.segments()[::2]:
            world.build(segment, rng)
        with contextlib.closing(world.service()) as service:
            yield world, service


def partials_of(service: QueryService, sql: str) -> tuple[str, list[str]]:
    """Return what EXPLAIN says is read, and the codes of the warnings."""
    outcome = service.execute(f"explain {sql}")
    rows = {row["item"]: row["value"] for row in outcome.table().to_pylist()}
    return rows["partials"].removeprefix("__rows, "), [warning.code for warning in outcome.warnings]


SET, SKETCH = Measure("count_distinct", "passenger"), Measure("approx_distinct", "passenger", 12)
CALLS = ("count(distinct passenger)", "approx_count_distinct(passenger)")


@pytest.mark.parametrize(
    ("measures", "read", "warned"),
    [
        ((SKETCH, SET), (EXACT, SKETCHED), ([], [])),
        ((SET,), (EXACT, EXACT), ([], [])),
        ((SKETCH,), (SKETCHED, SKETCHED), (["approximate"], [])),
    ],
    ids=("both", "exact", "approximate"),
)
def test_each_call_is_answered_by_what_is_declared_and_explain_says_which(
    measures: tuple[Measure, ...], read: tuple[str, str], warned: tuple[list[str], list[str]]
) -> None:
    with asked(*measures) as (world, service):
        for call, partial, codes in zip(CALLS, read, warned, strict=True):
            assert partials_of(service, SQL.format(call=call)) == (partial, codes)
        events = world.visible().to_pylist()
        exact = {
            carrier: len({e["passenger"] for e in events if e["carrier"] == carrier} - {None})
            for carrier in {event["carrier"] for event in events}
        }
        found = service.execute(SQL.format(call=CALLS[0])).table().to_pylist()
        if EXACT in read:
            assert {row["carrier"]: row["n"] for row in found} == exact
        columns = described(QueryCatalogue(cubes={"flights": world.schema}), "flights")
        comments = {column.name: column.comment for column in columns}
        functions = sorted(measure.function for measure in measures)
        assert comments["passenger"] == f"measure: {', '.join(functions)}"


def test_a_call_that_nothing_answers_names_the_measure_to_declare() -> None:
    with asked() as (_, service), pytest.raises(QueryError, match="function: count_distinct, column: delay"):
        service.execute("select count(distinct delay) from flights")
    with asked(SET, Measure("count_distinct", "price")) as (_, service):
        with pytest.raises(QueryError, match="as a dimension"):  # pairs of values are not kept
            service.execute("select count(distinct passenger, price) from flights")
        with pytest.raises(QueryError, match="as a dimension"):
            service.execute("select sum(distinct price) from flights")


@pytest.mark.parametrize("call", ["count(distinct passenger)", "count(distinct passenger) + 0"])
def test_too_many_values_are_an_error_that_names_the_measure(call: str) -> None:
    """By the merge of partials alone, and by the engine. Other measures and smaller groups are answered."""
    with asked(Measure("count_distinct", "passenger", lg_max=4)) as (_, service):
        with pytest.raises(OutOfRange, match=r"COUNT\(DISTINCT .*at most 16 .*approx_distinct") as refused:
            service.execute(f"select {call} from flights").table()
        assert error_code(refused.value)[0] == 1690
        assert service.execute("select sum(delay), count(*) c from flights").table()["c"].to_pylist() == [400]
        few = "select hour_start, carrier, origin, gate, count(distinct passenger) n, count(*) c from flights"
        rows = service.execute(f"{few} group by 1, 2, 3, 4").table().to_pylist()
        assert sum(row["c"] for row in rows) == 400
        assert max(row["n"] for row in rows) >= 1
