"""A statement is rewritten once for a catalogue, unless its meaning depends on when or how it is asked."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from rtolap.query import prepared as prepared_statements
from rtolap.query.catalogue import Catalogue
from rtolap.query.plan import Rewritten
from rtolap.query.prepared import PreparedStatements
from rtolap.query.sql.rules import Context
from sqlglot import exp

from tests.support.cubes.builders import small_schema

KEPT = 16  # statements, so that few of them push others out


def catalogue() -> Catalogue:
    schema = small_schema()
    return Catalogue(cubes={schema.cube.name: schema})


Ask = Callable[[str, Catalogue], Rewritten]


@pytest.fixture
def ask() -> Ask:
    prepared = PreparedStatements()

    def fold(expression: exp.Expr) -> object:
        return expression.to_py() if isinstance(expression, exp.Literal) else "2023-11-14 22:14:00"

    def rewrite(sql: str, known: Catalogue) -> Rewritten:
        return prepared.rewrite(prepared.parse(sql), Context(catalogue=known, fold=fold))

    return rewrite


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
    prepared, known = PreparedStatements(), catalogue()
    statement = prepared.parse("SELECT COUNT(*) FROM sales_by_kind WHERE place = ? AND kind <> ?")

    def bound(*values: object) -> Rewritten:
        named = dict(zip(statement.parameters, values, strict=True))

        def fold(expression: exp.Expr) -> object:
            return named[expression.name] if isinstance(expression, exp.Parameter) else expression.to_py()

        return prepared.rewrite(statement, Context(catalogue=known, fold=fold), named)

    first = bound(1, "x")
    assert bound(1, "x") is first
    assert bound(2, "x") is not first
    assert bound(True, "x") is not first
    assert bound(1, "x") is first
    assert first.reads[0].filter != bound(2, "x").reads[0].filter
    assert prepared.rewrites == 3


def test_statements_with_many_values_do_not_push_out_those_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_statements, "STATEMENTS_KEPT", KEPT)
    prepared, known = PreparedStatements(), catalogue()

    def rewrite(sql: str, **values: object) -> Rewritten:
        def fold(expression: exp.Expr) -> object:
            return values[expression.name] if isinstance(expression, exp.Parameter) else expression.to_py()

        return prepared.rewrite(prepared.parse(sql), Context(catalogue=known, fold=fold), values)

    plain = "SELECT COUNT(*) FROM sales_by_kind"
    first = rewrite(plain)
    for number in range(KEPT + 10):
        rewrite(f"{plain} WHERE place = :place", place=number)
    assert rewrite(plain) is first


def test_the_least_recently_used_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_statements, "STATEMENTS_KEPT", KEPT)
    prepared = PreparedStatements()
    kept, gone = "SELECT 1", "SELECT 2"
    first, second = prepared.parse(kept), prepared.parse(gone)
    for number in range(KEPT - 1):
        prepared.parse(f"SELECT {number} AS other")
        assert prepared.parse(kept) is first
    assert prepared.parse(gone) is not second
