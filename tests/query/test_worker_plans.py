"""A plan that crosses between a worker and the service is the plan that the planner has made, all of it."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
from rtolap.base.errors import Corrupted
from rtolap.model.cube import Measure
from rtolap.query.catalogue import QueryCatalogue
from rtolap.query.engine import EmbeddedEngine
from rtolap.query.plan import CutCheck, Rewritten
from rtolap.query.sql.planner import SqlPlanner
from rtolap.query.workers.plans import WorkerPlan, plan_of, rewritten_of

from tests.support.aggregates.measured import made_schema
from tests.support.cubes.flights import flights_schema, routes_schema

TEXTS = made_schema((Measure("count"), Measure("group_concat", "text", bytes_max=120)))
STATEMENTS = (
    "SELECT 1",
    "SELECT carrier, COUNT(*) FROM flights GROUP BY carrier",
    "SELECT carrier, SUM(delay) s FROM flights WHERE origin <> ? GROUP BY carrier ORDER BY s DESC LIMIT 3",
    "SELECT carrier, origin FROM flights WHERE gate > ? LIMIT 5",
    "SELECT hour_start, carrier FROM flights ORDER BY hour_start DESC LIMIT 5",
    "SELECT COUNT(*) FROM flights WHERE carrier IN (SELECT origin FROM routes)",
    "SELECT a.carrier, COUNT(*) FROM flights a JOIN routes b ON a.origin = b.origin GROUP BY a.carrier",
    "SELECT table_name FROM information_schema.tables",
    "SELECT shop, GROUP_CONCAT(DISTINCT text) FROM measured WHERE region > ? GROUP BY shop",
    "WITH c AS (SELECT GROUP_CONCAT(DISTINCT text) t FROM measured) SELECT t FROM c",
    "SELECT CONCAT(carrier, ?), COUNT(DISTINCT origin) FROM flights GROUP BY 1",
)
LEFT_OUT = {"lookups", "tables", "warnings"}  # of the statements here; servers have lookups and stored tables


@pytest.fixture(scope="module")
def catalogue() -> QueryCatalogue:
    schemas = (flights_schema(), routes_schema(), TEXTS)
    return QueryCatalogue(cubes={schema.cube.name: schema for schema in schemas})


@pytest.fixture(scope="module")
def plans(catalogue: QueryCatalogue, engine: EmbeddedEngine) -> list[Rewritten]:
    planner, found = SqlPlanner(), []
    session = engine.session()
    try:
        for sql in STATEMENTS:
            statement = planner.read(sql, None)
            values = statement.bind(["5"] * sql.count("?"))
            found.append(planner.plan(statement, values, catalogue, session.value, lambda: None).rewritten)
    finally:
        session.close()
    return found


def crossed(rewritten: Rewritten, catalogue: QueryCatalogue) -> Rewritten:
    plan = msgspec.msgpack.decode(msgspec.msgpack.encode(plan_of(rewritten)), type=WorkerPlan)
    return rewritten_of(plan, catalogue, rewritten.parameters)


def test_nothing_of_a_plan_is_lost(plans: list[Rewritten], catalogue: QueryCatalogue) -> None:
    for rewritten in plans:
        assert crossed(rewritten, catalogue) == rewritten


def test_the_plans_here_have_something_of_each_kind(plans: list[Rewritten]) -> None:
    fields = {field.name for field in dataclasses.fields(Rewritten)}
    assert {name for name in fields if any(getattr(each, name) for each in plans)} >= fields - LEFT_OUT
    assert WorkerPlan.__struct_fields__ == ("rest", "reads", "tables")


def test_a_check_of_texts_is_of_the_parameters_of_its_plan(
    plans: list[Rewritten], catalogue: QueryCatalogue
) -> None:
    (of_texts, *_) = [each for each in plans if each.cuts]
    (check,) = of_texts.cuts
    other = dataclasses.replace(
        of_texts, cuts=(CutCheck(check.sql, (*check.parameters, "other"), check.warning),)
    )
    with pytest.raises(Corrupted, match="a parameter"):
        crossed(other, catalogue)
