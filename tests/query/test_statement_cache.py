"""A statement is rewritten once for a catalogue, unless its meaning depends on when or how it is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from rtolap.query import statement_cache
from rtolap.query.catalogue import QueryCatalogue
from rtolap.query.plan import Rewritten
from rtolap.query.sql.planner import SqlPlanner
from rtolap.query.statement_cache import StatementCache

from tests.support.cubes.builders import small_schema

CACHED_MAX = 16  # statements, so that few of them push others out


def catalogue() -> QueryCatalogue:
    schema = small_schema()
    return QueryCatalogue(cubes={schema.cube.name: schema})


Ask = Callable[..., Rewritten]


def value_of(sql: str, parameters: Mapping[str, object]) -> object:
    return "2023-11-14 22:14:00"


def asking(prepared: StatementCache) -> Ask:
    planner = SqlPlanner()

    def ask(sql: str, known: QueryCatalogue, **values: object) -> Rewritten:
        statement = prepared.statement(sql, None, planner.read)
        return prepared.rewritten(
            *(statement, known, values),
            lambda one, bound: planner.plan(one, bound, known, value_of, lambda: None),
        )

    return ask


@pytest.fixture
def ask() -> Ask:
    return asking(StatementCache())


def test_the_same_text_is_rewritten_once(ask: Ask) -> None:
    known = catalogue()
    sql = "SELECT kind, COUNT(*) FROM sales_by_kind WHERE place = 3 GROUP BY kind"
    assert ask(sql, known) is ask(sql, known)


def test_another_catalogue_is_another_rewriting(ask: Ask) -> None:
    sql = "SELECT COUNT(*) FROM sales_by_kind"
    first, second = ask(sql, catalogue()), ask(sql, catalogue())
    assert first is not second
    assert first.sql == second.sql


def test_what_depends_on_the_moment_is_rewritten_each_time(ask: Ask) -> None:
    known = catalogue()
    sql = "SELECT COUNT(*) FROM sales_by_kind WHERE ts >= DATE_TRUNC('minute', NOW())"
    assert ask(sql, known) is not ask(sql, known)


def test_parameters_are_rewritten_once_for_the_same_values() -> None:
    prepared, known = StatementCache(), catalogue()
    ask = asking(prepared)

    def bound(*values: object) -> Rewritten:
        sql = "SELECT COUNT(*) FROM sales_by_kind WHERE place = ? AND kind <> ?"
        return ask(sql, known, p1=values[0], p2=values[1])

    first = bound(1, "x")
    assert bound(1, "x") is first
    assert bound(2, "x") is not first
    assert bound(True, "x") is not first
    assert bound(1, "x") is first
    assert first.reads[0].filter != bound(2, "x").reads[0].filter
    assert prepared.rewrites == 3


def test_statements_with_many_values_do_not_push_out_those_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statement_cache, "STATEMENTS_CACHED_MAX", CACHED_MAX)
    ask, known = asking(StatementCache()), catalogue()
    plain = "SELECT COUNT(*) FROM sales_by_kind"
    first = ask(plain, known)
    for number in range(CACHED_MAX + 10):
        ask(f"{plain} WHERE place = :place", known, place=number)
    assert ask(plain, known) is first


def test_the_least_recently_used_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statement_cache, "STATEMENTS_CACHED_MAX", CACHED_MAX)
    prepared, planner = StatementCache(), SqlPlanner()

    def read(sql: str) -> object:
        return prepared.statement(sql, None, planner.read)

    kept, gone = "SELECT 1", "SELECT 2"
    first, second = read(kept), read(gone)
    for number in range(CACHED_MAX - 1):
        read(f"SELECT {number} AS other")
        assert read(kept) is first
    assert read(gone) is not second


def test_neither_long_texts_nor_long_values_are_kept(ask: Ask) -> None:
    known = catalogue()
    sql = "SELECT COUNT(*) FROM sales_by_kind WHERE kind = :kind"
    short, long = "x", "x" * statement_cache.TEXT_CHARACTERS_MAX
    assert ask(sql, known, kind=short) is ask(sql, known, kind=short)
    assert ask(sql, known, kind=long) is not ask(sql, known, kind=long)
    text = f"SELECT COUNT(*) FROM sales_by_kind WHERE kind = '{long}'"
    assert ask(text, known) is not ask(text, known)
