"""A statement that nobody named has the plan that a planner makes of it that knows no other statement."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import msgspec
import pytest
from rtolap.base.errors import QueryError
from rtolap.model.cube import Measure, Schema
from rtolap.model.table import Column
from rtolap.query.catalogue import QueryCatalogue
from rtolap.query.engine import EmbeddedEngine
from rtolap.query.sql.planner import SqlPlanner

from tests.query.test_plan_templates import Asking
from tests.support.cubes.flights import flights_schema, routes_schema
from tests.support.seeds import so_many

SEEDS = range(so_many(2, 4))
STATEMENTS = 160
SHAPES = 14
SPARED_MIN = 8  # statements of a run that are not planned, or the draw says little

TEXTS = (
    *("AA", "UA", "aa", "AA ", "  AA", "AA\t", "é", "É", "e\u0301", "x y", "NULL", "true", "inf", "epoch"),
    *("0x10", "x" * 300, "%", "a%", "_", '"', "`", "--", "/*", "a;b", "Zq0x", "$1", "p1", ":p", "?", "today"),
    *("ß", "SS", "ſ", "İ", "\u200b", "\ufeffAA", "AA\u00a0", "1e3", "1_000", "١٢", "a2013-01-02", "T06:00"),
)
FEW_TEXTS = ("AA ", "é", "É", "aa")
CONDITIONS = (
    *(
        "{t} = {v} AND {t} = {v}",
        "{t} > {v} AND {t} < {v}",
        "{t} <> {v} AND {t} = {v}",
        "NOT (NOT {t} = {v})",
    ),
    *("{t} IN ({v}, {v}) AND {t} <> {v}", "{t} IN ({v}) OR {t} IN ({v}, {v})", "({t} = {v}) IS TRUE"),
    *("{t} = {v} OR gate = 2 AND {t} = {v}", "{t} BETWEEN {v} AND {v} AND {t} = {v}", "on_time = {v}"),
    *("{t} NOT LIKE 'a!%' ESCAPE '!' AND {t} = {v}", "{t} = {v} XOR {t} = {v}", "'a' = {v} OR {t} = {v}"),
    *("{t} = {v} AND gate BETWEEN 3 AND 1", "{t} IS NULL OR {t} = {v}", "carrier = origin AND carrier = {v}"),
    *("{t} = {v} AND ts >= '2013-01-01' AND ts < '2013-01-01 05:30:00'", "{t} < {v} OR {t} >= {v}"),
    *("EXISTS (SELECT 1 FROM routes r WHERE r.origin = {v})", "gate = -1 AND {t} <> {v}"),
)
STATEMENTS_OF = (
    *("SELECT carrier, COUNT(*) FROM flights WHERE {c} GROUP BY 1 ORDER BY 2 DESC LIMIT 3 OFFSET 1",) * 4,
    "SELECT ({t} = {v}), COUNT(*) FROM flights WHERE {c} GROUP BY 1",
    "SELECT COUNT(*) c, ({t} IN ({v}, {v})) FROM flights GROUP BY {t} HAVING {t} = {v}",
    "SELECT SUM(IF({t} = {v}, delay, 0)), ROUND(AVG(delay), 2) FROM flights WHERE {c}",
    "SELECT SUM(CASE WHEN {t} = {v} THEN delay END), COUNT(*) FROM flights",
    "SELECT GROUP_CONCAT(DISTINCT carrier SEPARATOR {v}) FROM flights WHERE {c}",
    "SELECT DATE_FORMAT(ts, '%Y-%m') y, CAST(carrier AS CHAR(1)) FROM flights WHERE {c} GROUP BY 1, 2",
    "SELECT COUNT(*) FROM flights WHERE carrier = {v} UNION ALL SELECT COUNT(*) FROM flights WHERE {c}",
    "WITH w AS (SELECT {t} o, COUNT(*) n FROM flights WHERE {c} GROUP BY {t}) SELECT * FROM w WHERE o = {v}",
    "SELECT * FROM (SELECT carrier x, SUM(delay) s FROM flights GROUP BY carrier) q WHERE x = {v}",
    "SELECT COUNT(*) FILTER (WHERE {t} = {v}) FROM flights WHERE {t} <> {v}",
    "EXPLAIN SELECT COUNT(*) FROM flights WHERE {t} = {v}",
    "SELECT COUNT(*) FROM flights f LEFT JOIN routes r ON f.origin = r.origin AND r.carrier = {v} "
    "WHERE f.carrier = {v}",
    "SELECT delay, ts FROM flights WHERE {c} ORDER BY ts DESC LIMIT 3",
    "SELECT table_name FROM information_schema.tables WHERE table_name = {v}",
)
# Each with a text of TEXTS in it, so that a draw meets what a definition names.
COMPUTED = (
    Column("is_aa", "boolean", expression="carrier = 'AA'"),
    Column("is_united", "boolean", expression="NOT carrier IN ('UA', 'aa')"),
)


def computing_schema() -> Schema:
    """Return the flights with computed dimensions and a filtered measure."""
    plain = flights_schema()
    table = msgspec.structs.replace(plain.table, columns=(*plain.table.columns, *COMPUTED))
    names = tuple(column.name for column in COMPUTED)
    measures = (*plain.cube.measures, Measure("sum", "delay", where="carrier = 'x y'"))
    cube = msgspec.structs.replace(plain.cube, dimensions=(*plain.cube.dimensions, *names), measures=measures)
    return Schema(table, cube)


def drawn(rng: random.Random, *, bound: bool) -> Iterator[tuple[str, list[object]]]:
    """Yield texts with the values of their question marks: none, unless values are `bound`."""
    shapes = []
    for _ in range(SHAPES):
        text = rng.choice(STATEMENTS_OF)
        while "{c}" in text:
            text = text.replace("{c}", rng.choice(CONDITIONS), 1)
        while "{t}" in text:
            text = text.replace("{t}", rng.choice(("carrier", "origin")), 1)
        shapes.append(text)
    pool = rng.choice((TEXTS, FEW_TEXTS))  # few of them: the same text comes twice in one statement
    for _ in range(STATEMENTS):
        text, values = rng.choice(shapes), list[object]()
        while "{v}" in text:
            value = rng.choice((*pool, "it's", "a\\")) if bound else rng.choice(pool)
            values += [value] if bound else []
            text = text.replace("{v}", "?" if bound else f"'{value}'", 1)
        yield text, values


def differing(asking: Asking, statements: Sequence[tuple[str, list[object]]]) -> tuple[list[str], int]:
    """Return the statements that the cache reads or plans otherwise than a planner that knows no other, and
    how many have a plan that was not made for them."""
    wrong, spared = [], 0
    for sql, values in statements:
        rewrites = asking.cache.rewrites
        plan = asking.cached(sql, values)
        spared += asking.cache.rewrites == rewrites and not isinstance(plan, str)
        if plan != asking.plain(sql, values):
            wrong.append(f"{sql} {values}")
        try:
            read = SqlPlanner().read(sql, None)
        except QueryError:
            continue
        if asking.cache.statement(sql, None, SqlPlanner().read) != read:
            wrong.append(f"read: {sql}")
    return wrong, spared


@pytest.mark.seeded
@pytest.mark.parametrize("computing", [False, True])
@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_drawn_statement_is_planned_as_if_it_were_the_first(
    engine: EmbeddedEngine, seed: int, bound: bool, computing: bool
) -> None:
    asking = Asking(engine)
    schema = computing_schema() if computing else flights_schema()
    asking._known = QueryCatalogue(cubes={"flights": schema, "routes": routes_schema()})
    statements = list(drawn(random.Random(seed), bound=bound))
    wrong, spared = differing(asking, statements)
    assert not wrong, f"seed {seed}"
    assert spared >= SPARED_MIN, f"seed {seed}: the draw has too few shapes with templates"


@pytest.mark.parametrize(
    ("condition", "declared"),
    [("carrier = '{}'", ("AA",)), ("NOT carrier IN ('{}', '{}')", ("UA", "aa"))],
)
def test_a_text_that_a_definition_names_is_not_filled_in(
    engine: EmbeddedEngine, condition: str, declared: tuple[str, ...]
) -> None:
    asking = Asking(engine)
    asking._known = QueryCatalogue(cubes={"flights": computing_schema(), "routes": routes_schema()})
    others = [tuple(f"c{number}{place}" for place in range(len(declared))) for number in range(4)]
    statements: list[tuple[str, list[object]]] = [
        (f"SELECT origin, COUNT(*) FROM flights WHERE {condition.format(*texts)} GROUP BY 1", [])
        for texts in (*others[:3], declared, *others[3:])
    ]
    wrong, _ = differing(asking, statements)
    assert not wrong
    assert asking.cache.rewrites == 3, (
        "the others have a template, and the declared one has a plan of its own"
    )
