"""A plan out of a template of its shape is the plan that the planner makes of the statement itself."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest
from rtolap.base.errors import QueryError, QueryInterrupted, QueryTimeout, RtolapError, Unavailable
from rtolap.query import statement_cache
from rtolap.query.catalogue import QueryCatalogue
from rtolap.query.engine import EmbeddedEngine
from rtolap.query.plan import Planned, Rewritten
from rtolap.query.shapes import plan_templates, shaped, statement_shape
from rtolap.query.shapes.plan_templates import PlanTemplate
from rtolap.query.shapes.statement_shape import operands_of, shape_of
from rtolap.query.sql import planner
from rtolap.query.sql.planner import SqlPlanner
from rtolap.query.sql.statement import SqlStatement
from rtolap.query.statement_cache import StatementCache
from sqlglot import exp

from tests.support.cubes.flights import flights_schema, routes_schema
from tests.support.seeds import so_many

SEEDS = range(so_many(2, 4))
STATEMENTS = 160
SHAPES = 12  # of a run, so that each comes some ten times
SPARED_MIN, BOUND_SPARED_MIN = 8, 3  # statements of a run that are not planned, or the draw says little
VALUES = (
    *("AA", "UA", "aa", "JFK", "é", "日本 😀", "a%_b", "x y", "null", "true", "/a/b-c", "x" * 300),
    *("DL", "EWR", "LGA", "b", "c", "1e3", "12abc", "+a", "Aa"),
)
OTHER_VALUES = ("", " ", "5", "-5", "5.0", "2013-01-02", "2013-01-02 06:00:00", "20130102", "06:00")
OTHERS = 0.04  # of them

TEXT_COLUMNS = ("carrier", "origin")
COLUMNS = (*TEXT_COLUMNS, "gate", "fare_class", "flown_on", "on_time", "ts", "hour_start", "day_start")
CONDITIONS = (
    *("{text} = {v}", "{text} <> {v}", "{text} IN ({v}, {v}, {v})", "{text} NOT IN ({v}, {v})"),
    *("{text} >= {v}", "{text} = {v} OR {text} = {v}", "NOT ({text} = {v} AND {text} < {v})"),
    *("{any} = {v}", "{any} < {v}", "{any} IN ({v}, {v})", "{any} IN ({v}, 5)"),
    *(
        "{text} = LOWER({v})",
        "{text} = {v} COLLATE utf8mb4_bin",
        "{text} LIKE {v}",
        "{text} = CONCAT({v}, 'x')",
    ),
    *("{text} = 'a' {v}", "{text} BETWEEN {v} AND {v}", "IF({text} = {v}, 1, 0) = 1", "{v} = {text}"),
    *("gate > 1 AND {text} = {v}", "ts >= '2013-01-02' AND {text} <> {v}", "{text} = {v} AND {v} = {v}"),
    *("(carrier, origin) IN (({v}, {v}))", "{text} = (SELECT MAX({v}))", "{text} > GREATEST({v}, 'AA')"),
    *(
        "{text} <=> {v}",
        "{text} = {v} -- it's",
        "{text} = {v} /* ' */",
        "CASE {text} WHEN {v} THEN 1 END = 1",
    ),
)
STATEMENT = (
    *("SELECT carrier, COUNT(*) FROM flights WHERE {c} GROUP BY carrier",) * 4,
    "SELECT origin, SUM(delay) s FROM flights WHERE {c} AND {c} GROUP BY origin ORDER BY s DESC LIMIT 3",
    "SELECT COUNT(*), SUM({text} = {v}) FROM flights WHERE {c}",
    "SELECT {v}, COUNT(*) FROM flights WHERE {c}",
    "SELECT carrier, MAX(delay) FROM flights WHERE {c} GROUP BY carrier HAVING carrier <> {v}",
    "SELECT a.carrier, COUNT(*) FROM flights a JOIN routes b ON a.origin = b.origin WHERE a.carrier = {v} "
    "AND b.origin <> {v} GROUP BY a.carrier",
    "SELECT COUNT(*) FROM flights WHERE {c} AND carrier IN (SELECT carrier FROM flights WHERE {c})",
    "SELECT origin, COUNT(*) FROM (SELECT * FROM flights WHERE {c}) f WHERE {text} = {v} GROUP BY origin",
    "SELECT carrier, origin FROM flights WHERE {c} LIMIT 5",
)


def catalogue() -> QueryCatalogue:
    return QueryCatalogue(cubes={"flights": flights_schema(), "routes": routes_schema()})


def drawn_shapes(rng: random.Random) -> list[str]:
    """Return statements with `{v}` where a literal goes."""
    shapes = []
    for _ in range(SHAPES):
        text = rng.choice(STATEMENT)
        while "{c}" in text:
            text = text.replace("{c}", rng.choice(CONDITIONS), 1)
        while "{text}" in text:
            text = text.replace("{text}", rng.choice(TEXT_COLUMNS), 1)
        while "{any}" in text:
            text = text.replace("{any}", rng.choice(COLUMNS), 1)
        shapes.append(text)
    return shapes


def drawn_statements(rng: random.Random, *, bound: bool) -> Iterator[tuple[str, list[object]]]:
    """Yield texts with the values of their question marks: none, unless values are `bound`."""
    shapes = drawn_shapes(rng)
    for _ in range(STATEMENTS):
        text = rng.choice(shapes)
        parameters: list[object] = []
        while "{v}" in text:
            value: object = rng.choice(OTHER_VALUES if rng.random() < OTHERS else VALUES)
            if bound:
                parameters.append(rng.choice((5, None)) if rng.random() < OTHERS else value)
            text = text.replace("{v}", "?" if bound else f"'{value}'", 1)
        yield text, parameters


class Asking:
    """Plans statements with a cache that lives on, and each again without any."""

    def __init__(self, engine: EmbeddedEngine) -> None:
        self.cache = StatementCache()
        self._known = catalogue()
        self._engine = engine
        self._planner = SqlPlanner()

    def cached(self, sql: str, parameters: Sequence[object] = ()) -> Rewritten | str:
        def ask() -> Rewritten:
            statement = self.cache.statement(sql, None, self._planner.read)
            return self.cache.rewritten(
                *(statement, self._known, statement.bind(parameters)),
                lambda one, bound: self._plan(self._planner, one, bound),
            )

        return self._or_error(ask)

    def plain(self, sql: str, parameters: Sequence[object] = ()) -> Rewritten | str:
        def ask() -> Rewritten:
            fresh = SqlPlanner()
            statement = fresh.read(sql, None)
            return self._plan(fresh, statement, statement.bind(parameters)).rewritten

        return self._or_error(ask)

    def _plan(self, by: SqlPlanner, statement: SqlStatement, values: Mapping[str, object]) -> Planned:
        session = self._engine.session()
        try:

            def value_of(sql: str, parameters: Mapping[str, object]) -> object:
                return session.value(sql, parameters)

            return by.plan(statement, values, self._known, value_of, lambda: None)
        finally:
            session.close()

    def _or_error(self, ask: Callable[[], Rewritten]) -> Rewritten | str:
        try:
            return ask()
        except QueryError as error:
            return str(error)


def differences(engine: EmbeddedEngine, seed: int, *, bound: bool = False) -> tuple[list[str], int]:
    """Return the statements whose plans differ, and how many were not planned."""
    asking = Asking(engine)
    wrong, planned = [], 0
    for sql, parameters in drawn_statements(random.Random(seed), bound=bound):
        expected = asking.plain(sql, parameters)
        if asking.cached(sql, parameters) != expected:
            wrong.append(f"{sql} {parameters}")
        planned += not isinstance(expected, str)
    return wrong, planned - asking.cache.rewrites


@pytest.mark.seeded
@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_filled_template_is_the_plan_of_the_statement(
    engine: EmbeddedEngine, seed: int, bound: bool
) -> None:
    wrong, spared = differences(engine, seed, bound=bound)
    assert not wrong, f"seed {seed}"
    assert spared >= (BOUND_SPARED_MIN if bound else SPARED_MIN), (
        f"seed {seed}: the draw has too few shapes with templates"
    )


def test_the_draw_notices_a_template_that_was_not_proven(
    engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unproven(
        literals: Sequence[str], planned: Planned, plan: Callable[[Sequence[str]], Planned]
    ) -> PlanTemplate | None:
        markers = tuple(f"Zq{place}" for place in range(len(literals)))
        return PlanTemplate(plan(markers).rewritten, markers)

    monkeypatch.setattr(statement_cache, "template_of", unproven)
    assert any(differences(engine, seed)[0] for seed in SEEDS)


EXPRESSIONS = (
    *("LOWER({v})", "GREATEST({v}, 'b')", "LEFT({v}, 100)", "{v} 'x'", "CONCAT({v}, '')", "({v})"),
    *("IF({v} = 'AA', 'x', {v})", "NULLIF({v}, 'AA')", "CAST({v} AS CHAR(100))", "TRIM({v})"),
)


def within(engine: EmbeddedEngine, expression: str) -> list[str]:
    """Return the statements whose plans differ, of four that compare with such an expression."""
    asking = Asking(engine)
    literals = ("'cc'", "'dd'", "'AA'", f"'{'Z' * 250}'")
    texts = [
        f"SELECT COUNT(*) FROM flights WHERE carrier = {expression.replace('{v}', literal)}"
        for literal in literals
    ]
    return [sql for sql in texts if asking.cached(sql) != asking.plain(sql)]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_literal_within_an_expression_is_no_operand(engine: EmbeddedEngine, expression: str) -> None:
    assert not within(engine, expression)


def test_it_shows_where_every_literal_is_taken_out(
    engine: EmbeddedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two more guards are off: functions of literals vary, and markers have capitals."""

    def every_text(tokens: Sequence[statement_shape._Token]) -> list[int]:
        return [place for place, token in enumerate(tokens) if token.kind == "text"]

    def small_letters(count: int) -> tuple[str, ...]:
        return tuple(f"zq{place}x" for place in range(count))

    monkeypatch.setattr(shaped, "_shape_of", statement_shape.shape_of)  # without those of other tests
    monkeypatch.setattr(statement_shape, "_operands", every_text)
    monkeypatch.setattr(planner, "_CONSTANT", (exp.Expr,))
    monkeypatch.setattr(plan_templates, "_markers", small_letters)
    assert within(engine, "LOWER({v})")


@pytest.mark.parametrize(
    ("sql", "literals"),
    [
        ("select 1 where a = 'x'", ("x",)),
        ("select 1 where a in ('x', 'y') and b <> 'z' group by c", ("x", "y", "z")),
        ("select 'n' from t where a = 'x' limit 3", ("x",)),
        ("select 1 where a = '2013-01-02' and b = 'x'", ("x",)),
    ],
)
def test_the_literals_of_a_shape(sql: str, literals: tuple[str, ...]) -> None:
    shape = shape_of(sql)
    assert shape is not None
    assert shape.literals == literals
    assert shape.text(shape.literals) == sql


@pytest.mark.parametrize(
    "sql",
    [
        *("select 1", "select 'x'", "select 1 where a = 'x' 'y'", "select 1 where a = 'it''s'"),
        *(
            "select 1 where a = 'x\\'y'",
            "select 1 where a = \"x\" and b = 'y'",
            "select 1 where a = lower('x')",
        ),
        *(
            "select 1 where a in ('x', lower('y'))",
            "select 1 where a in ('x', 5)",
            "select 1 where a = 'x' -- y",
        ),
        *("select 1 where a = 'x' # y", "select 1 /* ' */ where a = 'x'", "select 1 where a = ? and b = 'x'"),
        *("select 1 where a <=> 'x'", "select 1 where a = 'x", "select 1 where a = 'x' collate c", "a = '5'"),
        *("select 1 where a = @b and c = 'x'", "select 1 where a = :b and c = 'x'", "a = 'x\ny'"),
    ],
)
def test_what_has_no_shape(sql: str) -> None:
    assert shape_of(sql) is None


def test_the_question_marks_that_are_operands() -> None:
    sql = "select ? from t where a = ? and b in (?, 'x', ?) and c = f(?) and d = ? + 1 and e in (?, 1)"
    assert operands_of(sql) == (False, True, True, True, False, False, False)
    assert operands_of(f"{sql} -- ?") == ()


def test_statements_that_differ_beside_their_literals_have_other_shapes() -> None:
    shapes = [
        shape_of(sql)
        for sql in (
            "select 1 where a = 'x'",
            "select 1 where b = 'x'",
            "select 1 where a in ('x')",
            "select 1 where a in ('x', 'y')",
            "select 1 where a = 'x' or b = ''",
        )
    ]
    pieces = [shape.pieces for shape in shapes if shape is not None]
    assert len(pieces) == len(shapes) == len(set(pieces))


def test_another_catalogue_needs_another_template(engine: EmbeddedEngine) -> None:
    asking = Asking(engine)
    for number in range(4):
        asking.cached(f"SELECT COUNT(*) FROM flights WHERE carrier = 'c{number}'")
    assert asking.cache.rewrites == 2
    asking._known = catalogue()
    asking.cached("SELECT COUNT(*) FROM flights WHERE carrier = 'again'")
    assert asking.cache.rewrites == 3


@pytest.mark.parametrize("error", [Unavailable, QueryInterrupted, QueryTimeout])
def test_a_statement_that_ends_early_leaves_its_shape_to_the_next(
    engine: EmbeddedEngine, error: type[RtolapError], monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = Asking(engine)
    statements = [f"SELECT COUNT(*) FROM flights WHERE carrier = 'c{number}'" for number in range(4)]
    asking.cached(statements[0])
    proven = plan_templates.template_of

    def ended(*arguments: object) -> None:
        raise error("the worker ended")

    monkeypatch.setattr(statement_cache, "template_of", ended)
    with pytest.raises(error):
        asking.cache.rewritten(
            *(asking.cache.statement(statements[1], None, SqlPlanner().read), asking._known, {}),
            lambda one, bound: asking._plan(SqlPlanner(), one, bound),
        )
    monkeypatch.setattr(statement_cache, "template_of", proven)
    asking.cached(statements[2])
    rewrites = asking.cache.rewrites
    assert asking.cached(statements[3]) == asking.plain(statements[3])
    assert asking.cache.rewrites == rewrites
