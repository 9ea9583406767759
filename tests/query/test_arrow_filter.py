"""Large files are filtered by Arrow's expressions, small ones by columns: both keep the same rows."""

from __future__ import annotations

import random

import pyarrow.dataset as ds
import pytest
from rtolap.columnar.filter import mask
from rtolap.model.predicate import And, Compare, In, Not, Or, Predicate, terms_of
from rtolap.query.cubes.arrow_filter import arrow_filter

from tests.support.query.on_spark.drawn_reads import DIMENSIONS, SCHEMA, drawn_predicate, drawn_table
from tests.support.seeds import so_many

READ = {*DIMENSIONS, "__rows"}  # conditions are on dimensions


@pytest.mark.seeded
def test_drawn_conditions_keep_the_same_rows_of_large_and_of_small_files() -> None:
    for seed in range(so_many(300)):
        rng = random.Random(seed)
        table, condition = drawn_table(rng, 40, full=False, names=READ), drawn_predicate(rng)
        wanted = table.filter(mask(table, condition))
        found = ds.dataset(table).to_table(filter=arrow_filter(condition, SCHEMA))
        assert found.column("__rows").to_pylist() == wanted.column("__rows").to_pylist(), (seed, condition)


MANY = 20_000  # values of a list: a tree of as many comparisons would overflow a thread's stack
TERMS = 3_500  # a statement of 10 000 words has fewer


def many_of(name: str) -> Predicate:
    """Return a condition of many terms, of which some hold."""
    below = tuple(Compare("serial", "lt", -number) for number in range(TERMS))
    match name:
        case "In of texts":
            return In("name", ("A", *(f"A{number}" for number in range(MANY))))
        case "In of doubles":
            return In("ratio", tuple(number / 2 for number in range(MANY)))
        case "NOT IN":
            return In("serial", tuple(range(MANY)), negated=True)
        case "NOT of IN":
            return Not(In("serial", tuple(range(MANY))))
        case "And":
            return And(tuple(Not(one) for one in below))
    return Or(below)


def test_terms_within_terms_of_the_same_kind_are_terms() -> None:
    a, b, c, d = (Compare("gate", "eq", number) for number in range(4))
    assert terms_of(And((And((a, b)), c, Or((And((a, d)), b))))) == (a, b, c, Or((And((a, d)), b)))
    deep: Predicate = a
    for _ in range(MANY):
        deep = Or((deep, b))
    assert terms_of(deep) == (a, *[b] * MANY)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["In of texts", "In of doubles", "NOT IN", "NOT of IN", "And", "Or"])
def test_conditions_of_very_many_terms_are_answered(name: str) -> None:
    condition, rows = many_of(name), drawn_table(random.Random(3), 60, full=False, names=READ)
    wanted = rows.filter(mask(rows, condition))
    found = ds.dataset(rows).to_table(filter=arrow_filter(condition, SCHEMA))
    assert found.column("__rows").to_pylist() == wanted.column("__rows").to_pylist()
    assert 0 < found.num_rows < rows.num_rows or name == "In of texts"
