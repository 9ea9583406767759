"""SQL over every aggregate function of the registry equals the same SQL over the raw events.

Half of the cube is in history and the rest lives in receivers. The functions come out of the registry: one
that is added there is asked for as well.
"""

from __future__ import annotations

import contextlib
import json
import math
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import sqlglot
from rtolap.aggregates.approx_top_k import TOP_DEFAULT, ApproxTopK
from rtolap.aggregates.by_time import First, Last
from rtolap.aggregates.group_concat import BYTES_MAX_DEFAULT, GroupConcat
from rtolap.aggregates.registry import AGGREGATES
from rtolap.aggregates.variance import Deviation
from rtolap.base.errors import QueryError, UnsupportedSql
from rtolap.columnar.schema import EVENT_MS
from rtolap.model.cube import Measure
from rtolap.query.catalogue import QueryCatalogue
from rtolap.query.sql.dialect import RtolapSql
from rtolap.query.sql.rules import Context, rewrite
from rtolap.query.statement_service import QueryService

from tests.support.aggregates.joined import joined
from tests.support.aggregates.measured import MEASURED, SCHEMA, Measured, made_schema, measured_events
from tests.support.query.oracles.sql_oracle import asked_of, oracle_cursor, rows_of
from tests.support.query.query_world import QueryWorld, value_text
from tests.support.seeds import so_many

SEED = 4711
STATEMENTS = so_many(2)
every_measure = pytest.mark.parametrize("measured", MEASURED, ids=lambda each: each.id)

_ARGUMENTS = ("{c}", "CASE WHEN region > 0 THEN {c} END", "CASE shop WHEN 'Oslo' THEN {c} ELSE NULL END")
_KEYS = ("shop", "region", "hour_start", "shop, region", "region + 1", "DATE(at)")
_CONDITIONS = (
    "region >= 0",
    "shop IS NULL",
    "shop <> ''",
    "day_start >= '2013-01-01'",
    "region IN (0, 1)",
    "1 = 0",
)


@pytest.fixture(scope="module")
def world() -> Iterator[QueryWorld]:
    rng = random.Random(SEED)
    events = measured_events(rng, 600, limits=False).drop_columns([EVENT_MS])
    with contextlib.closing(QueryWorld(SCHEMA, events, {})) as made:
        for segment in made.segments()[::2]:
            made.build(segment, rng)
        yield made


@pytest.fixture(scope="module")
def service(world: QueryWorld) -> Iterator[QueryService]:
    with contextlib.closing(world.service()) as made:
        yield made


@pytest.fixture(scope="module")
def oracle(world: QueryWorld) -> Iterator[duckdb.DuckDBPyConnection]:
    with oracle_cursor() as connection:
        connection.register("measured", world.visible())
        yield connection


def statement(rng: random.Random, measured: Measured) -> tuple[str, str]:
    """A SELECT with a place `@` for a call of the function, and the call."""
    keys = rng.choice(("", *_KEYS))
    condition = rng.choice(("", *_CONDITIONS))
    text = f"SELECT {keys}{', ' if keys else ''}COUNT(*) n, @ v FROM measured"
    text += f" WHERE {condition}" if condition else ""
    call = measured.function.call(rng.choice(_ARGUMENTS).format(c=measured.column))
    return text + (f" GROUP BY {keys}" if keys else ""), call


def assert_equals_oracle(
    measured: Measured, text: str, call: str, service: QueryService, oracle: duckdb.DuckDBPyConnection
) -> None:
    sql = text.replace("@", call)
    got = service.execute(sql).table()
    rank_error = max(partial.accumulator.rank_error for partial in measured.partials)
    if rank_error:
        values = asked_of(oracle, text.replace("@", call.replace(f"{measured.function.title}(", "LIST(")))
        assert_of_rank(got, values, 0.5, rank_error, sql)
        return
    if isinstance(measured.function, ApproxTopK):
        values = asked_of(oracle, text.replace("@", call.replace(f"{measured.function.title}(", "LIST(")))
        assert_most_frequent(got, values, sql)
        return
    if isinstance(measured.function, First | Last):
        by_time = "ARG_MIN(" if isinstance(measured.function, First) else "ARG_MAX("
        raw = call.replace(f"{measured.function.title}(", by_time)[:-1] + ", ROW(at, __partition, __offset))"
        assert rows_of(got) == rows_of(asked_of(oracle, text.replace("@", raw))), sql
        return
    if isinstance(measured.function, GroupConcat):
        raw = call.replace("GROUP_CONCAT(DISTINCT ", "LIST(")
        texts = _by_key(asked_of(oracle, text.replace("@", raw)))
        assert [(key, shown) for key, shown in _by_key(got)] == [
            (key, joined(values or (), BYTES_MAX_DEFAULT)[0]) for key, values in texts
        ], sql
        return
    error = max(partial.accumulator.relative_error for partial in measured.partials)
    if not error:
        empty = "NULL" if measured.function.empty is None else measured.function.empty
        raw = text.replace("@", f"COALESCE({call}, {empty})")  # engines differ in functions of no values
        expected = asked_of(oracle, raw)
        if isinstance(measured.function, Deviation):
            assert_close(got, expected, sql)
        else:
            assert rows_of(got) == rows_of(expected), sql
        return
    exact = asked_of(
        oracle, text.replace("@", call.replace(f"{measured.function.title}(", "COUNT(DISTINCT "))
    )
    for (key, estimate), (same_key, number) in zip(_by_key(got), _by_key(exact), strict=True):
        assert key == same_key
        assert abs(estimate - number) <= 1 + 5 * error * number, (sql, key)


def assert_of_rank(got: pa.Table, values: pa.Table, rank: float, error: float, sql: str) -> None:
    """The error is stated at 99 % confidence: one answer in a hundred may miss it, by less than as much."""
    for (key, value), (same_key, listed) in zip(_by_key(got), _by_key(values), strict=True):
        assert key == same_key
        numbers = [float(each) for each in listed or () if each is not None]
        if not numbers:
            assert value is None, sql
            continue
        below = sum(each < value for each in numbers) / len(numbers)
        upto = sum(each <= value for each in numbers) / len(numbers)
        assert below - 2 * error <= rank <= upto + 2 * error, (sql, key, value)


def assert_most_frequent(got: pa.Table, values: pa.Table, sql: str) -> None:
    for (key, shown), (same_key, listed) in zip(_by_key(got), _by_key(values), strict=True):
        assert key == same_key
        counts = Counter(value_text(each) for each in listed or () if each is not None)
        if not counts:
            assert shown is None, sql
            continue
        found = json.loads(shown)
        assert len(found) == min(TOP_DEFAULT, len(counts)), (sql, key)
        for each in found:
            assert each["lower"] <= counts[each["value"]] <= each["upper"] == each["estimate"], (sql, key)
        rest = set(counts) - {each["value"] for each in found}
        assert all(counts[value] <= found[-1]["estimate"] for value in rest), (sql, key)


def assert_close(got: pa.Table, expected: pa.Table, sql: str) -> None:
    """The engine's own variance is rounded at each row."""
    for (key, value), (same_key, other) in zip(_by_key(got), _by_key(expected), strict=True):
        assert key == same_key
        assert (value is None) == (other is None), sql
        assert value is None or math.isclose(value, other, rel_tol=1e-10, abs_tol=1e-12), sql


@every_measure
def test_no_event_at_all(measured: Measured, service: QueryService) -> None:
    call = measured.function.call(measured.column)
    got = service.execute(f"SELECT {call} v FROM measured WHERE region > 5").table()
    assert got.column("v").to_pylist() == [measured.function.empty]


def _by_key(table: pa.Table) -> list[tuple[str, Any]]:
    rows = [tuple(row.values()) for row in table.to_pylist()]
    return sorted((repr([str(each) for each in row[:-1]]), row[-1]) for row in rows)


@every_measure
def test_answers_over_live_and_built_events_equal_the_raw_rows(
    measured: Measured, service: QueryService, oracle: duckdb.DuckDBPyConnection
) -> None:
    rng = random.Random(f"{SEED} {measured.id}")
    call = measured.function.call(measured.column)
    assert_equals_oracle(measured, "SELECT @ v FROM measured", call, service, oracle)
    assert_equals_oracle(measured, "SELECT shop, @ v FROM measured GROUP BY shop", call, service, oracle)
    for _ in range(STATEMENTS):
        assert_equals_oracle(measured, *statement(rng, measured), service, oracle)


@every_measure
def test_a_column_by_itself_and_a_star_show_what_is_kept_of_it(measured: Measured) -> None:
    catalogue = QueryCatalogue(cubes={"measured": measured.schema})

    def rewritten(sql: str) -> str:
        tree = sqlglot.parse_one(sql, dialect=RtolapSql)
        return rewrite(tree, Context(catalogue, lambda node: node.this)).sql

    (partial, *_) = measured.partials
    assert partial.name in rewritten(f"SELECT {measured.column} FROM measured")
    assert measured.function.call(measured.column) in rewritten("SELECT * FROM measured")


@every_measure
def test_what_a_function_can_finish_needs_no_engine(measured: Measured) -> None:
    catalogue = QueryCatalogue(cubes={"measured": SCHEMA})
    sql = f"SELECT shop, {measured.function.call(measured.column)} v FROM measured GROUP BY shop"
    tree = sqlglot.parse_one(sql, dialect=RtolapSql)
    merge = rewrite(tree, Context(catalogue, lambda node: node.this)).merge
    finish = measured.function.finish(measured.partials[0].type)
    if finish is None:
        assert merge is None
        return
    assert merge is not None
    column = dict(merge.columns)["v"]
    partial_names = tuple(partial.name for partial in measured.partials)
    assert (column.kind, tuple(filter(None, (column.source, column.count)))) == (finish, partial_names)


@every_measure
def test_a_measure_that_is_not_declared_is_named_with_the_words_that_declare_it(measured: Measured) -> None:
    catalogue = QueryCatalogue(cubes={"measured": made_schema((Measure("count"),))})
    sql = f"SELECT {measured.function.call(measured.column)} FROM measured"
    with pytest.raises(QueryError) as refused:
        rewrite(sqlglot.parse_one(sql, dialect=RtolapSql), Context(catalogue, lambda node: node.this))
    assert measured.column in str(refused.value)


def test_every_title_is_read_by_the_parser_as_its_function() -> None:
    for function in AGGREGATES.values():
        (call,) = sqlglot.parse_one(f"SELECT {function.call('x')}", dialect=RtolapSql).expressions
        assert (call.this if function.in_count else call).key == function.sql_key


def test_a_list_of_frequent_values_is_read_by_functions_of_json(
    service: QueryService, oracle: duckdb.DuckDBPyConnection
) -> None:
    """Two values, so that the counts are exact."""
    sql = "SELECT APPROX_TOP_K(flag, ?) v, JSON_EXTRACT(APPROX_TOP_K(flag), '$[0].upper') n FROM measured"
    expected = asked_of(oracle, "SELECT flag, COUNT(*) n FROM measured WHERE flag IS NOT NULL GROUP BY flag")
    ordered = sorted(
        ((number, value_text(flag)) for flag, number in zip(*expected.to_pydict().values(), strict=True)),
        key=lambda each: (-each[0], each[1]),
    )
    (row,) = service.execute(sql, (1,)).table().to_pylist()
    (number, value), _ = ordered
    assert json.loads(row["v"]) == [{"value": value, "estimate": number, "lower": number, "upper": number}]
    assert int(row["n"]) == number
    (row,) = service.execute(sql, (2,)).table().to_pylist()
    assert [(each["estimate"], each["value"]) for each in json.loads(row["v"])] == ordered
    with pytest.raises(QueryError, match="a whole number from 1 to 4096"):
        service.execute(sql, (0,))


def test_frequent_values_of_rows_are_refused_with_what_to_write(service: QueryService) -> None:
    rows = "SELECT DISTINCT shop s FROM measured"
    with pytest.raises(UnsupportedSql, match="GROUP BY x ORDER BY n DESC"):
        service.execute(f"SELECT APPROX_TOP_K(s, 3) FROM ({rows}) t")
