"""A service that keeps plans of shapes gives the answers of one that plans every statement anew."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from rtolap.base.errors import QueryError
from rtolap.query import statement_cache
from rtolap.query.catalogue import QueryCatalogue
from rtolap.query.cubes.history import MemoryBounds
from rtolap.query.plan import Planned, Rewritten
from rtolap.query.shapes import shaped
from rtolap.query.shapes.plan_templates import PlanTemplate
from rtolap.query.sql.statement import SqlStatement
from rtolap.query.statement_cache import StatementCache
from rtolap.query.statement_service import QueryService

from tests.support.cubes.flights import (
    AIRLINES,
    AIRLINES_CSV,
    CARRIERS,
    flights_schema,
    random_flights,
    routes_schema,
)
from tests.support.query.drawn_shapes import Filled, drawn_shape, fillings
from tests.support.query.query_world import QueryWorld
from tests.support.seeds import SEARCHED, so_many

SEEDS = range(so_many(2, 4))
SHAPES, FILLINGS = 21, 12  # of a seed: shapes, and statements of each
ROWS = 120
# Texts of numbers that are equal are here too: a plan of the other number then shows in the rows.
CARRIER_TEXTS = (*CARRIERS, None, "1", "1.0", "1.00", "1e0", "0", "0.0", "-0.0", "10", "10.0")
NOTHING_KEPT = MemoryBounds(result_bytes=0)
SPARED_MIN = 12  # statements of a seed that are not planned, or the draw says little
ANSWERED_MIN = SHAPES * FILLINGS // 2


class NothingKnown(StatementCache):
    """A cache that reads and plans every statement."""

    def statement(
        self, text: str, database: str | None, read: Callable[[str, str | None], SqlStatement]
    ) -> SqlStatement:
        return read(text, database)

    def rewritten(
        self,
        statement: SqlStatement,
        catalogue: QueryCatalogue,
        values: Mapping[str, object],
        plan: Callable[[SqlStatement, Mapping[str, object]], Planned],
    ) -> Rewritten:
        return plan(statement, values).rewritten


@dataclass
class Services:
    """Two services of one world, the second without anything that it keeps."""

    keeps: QueryService
    plans_anew: QueryService
    wrong: list[str] = field(default_factory=list)

    def ask(self, statements: Sequence[Filled]) -> tuple[int, int]:
        """Ask both. Return how many are answered, and how many of these were not planned for."""
        answered = spared = 0
        for sql, values in statements:
            before = self.keeps.rewrites
            ours, theirs = (answer(one, sql, values) for one in (self.keeps, self.plans_anew))
            is_answer = not isinstance(ours, str)
            answered += is_answer
            spared += is_answer and self.keeps.rewrites == before
            if ours != theirs:
                self.wrong.append(f"{sql} {values}: {ours}\nplanned anew: {theirs}")
        return answered, spared


def answer(service: QueryService, sql: str, values: Sequence[object]) -> object:
    """Return names and types of columns, rows and warnings, or what the error says."""
    try:
        outcome = service.execute(sql, values)
        table = outcome.table()
    except QueryError as error:
        return str(error)
    rows = [repr(tuple(row.values())) for row in table.to_pylist()]  # 1.0 is not 1.00
    if " order by " not in sql.lower():
        rows.sort()
    columns = [(each.name, str(each.type), each.nullable) for each in outcome.schema]
    return columns, rows, outcome.warnings


@pytest.fixture(scope="module")
def small_world() -> Iterator[QueryWorld]:
    rng = random.Random(36)
    events = random_flights(rng, ROWS, days=1)
    carriers = pa.array(rng.choices(CARRIER_TEXTS, k=ROWS), pa.string())
    events = events.set_column(events.column_names.index("carrier"), "carrier", carriers)
    airlines = {"airlines": (AIRLINES, AIRLINES_CSV)}
    with contextlib.closing(QueryWorld(flights_schema(), events, airlines, routes_schema())) as made:
        for cube in made.schemas:
            for segment in made.segments(cube)[::2]:
                made.build(segment, rng, cube)
        yield made


@pytest.fixture
def services(small_world: QueryWorld) -> Iterator[Services]:
    with (
        contextlib.closing(small_world.service()) as keeps,
        contextlib.closing(
            small_world.service(bounds=NOTHING_KEPT, statement_cache=NothingKnown())
        ) as plans_anew,
    ):
        yield Services(keeps, plans_anew)


def drawn(seed: int, shapes: int = SHAPES) -> list[Filled]:
    """Return statements of several shapes, mixed, some of them asked again."""
    rng = random.Random(seed)
    found = [
        filled
        for number in range(shapes)
        for filled in fillings(drawn_shape(rng), rng, FILLINGS, bound=number % 3 == 2)
    ]
    found = list(dict.fromkeys(found)) + rng.sample(found, shapes)
    rng.shuffle(found)
    return found


@pytest.mark.seeded
@pytest.mark.parametrize("seed", SEEDS)
def test_answers_of_shapes_are_those_of_statements_planned_anew(services: Services, seed: int) -> None:
    answered, spared = services.ask(drawn(seed))
    assert not services.wrong, f"seed {seed}"
    assert answered >= ANSWERED_MIN, f"seed {seed}: the draw has too few answers"
    assert spared >= SPARED_MIN, f"seed {seed}: the draw has too few shapes with templates"


def unproven(
    literals: Sequence[str], planned: Planned, plan: Callable[[Sequence[str]], Planned]
) -> PlanTemplate:
    markers = tuple(f"Zq{place}x" for place in range(len(literals)))
    return PlanTemplate(plan(markers).rewritten, markers)


@pytest.mark.parametrize(
    ("fault", "shown_by"), [("templates_unproven", "FILTER"), ("equal_values_alike", "{number} AS CHAR")]
)
def test_the_draw_notices_plans_of_other_statements(
    services: Services, monkeypatch: pytest.MonkeyPatch, fault: str, shown_by: str
) -> None:
    if fault == "templates_unproven":
        monkeypatch.setattr(statement_cache, "template_of", unproven)
    else:
        monkeypatch.setattr(statement_cache, "value_key", lambda value: value)
        monkeypatch.setattr(shaped, "value_key", lambda value: value)
    rng = random.Random(1)
    for _ in range(SEARCHED):
        shape = drawn_shape(rng)
        if shown_by in shape:  # what the whole draw shows in its time, these show at once
            services.ask(list(fillings(shape, rng, 2 * FILLINGS, bound=fault == "equal_values_alike")))
        if services.wrong:
            return
    pytest.fail(f"{SEARCHED} drawn shapes show nothing of {fault}")
