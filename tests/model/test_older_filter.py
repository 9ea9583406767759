"""A filter says of an older revision's rows what it says of the newest's, where what is missing is NULL."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from rtolap.columnar.filter import mask
from rtolap.model.evolution.older_filter import INT_MAX, INT_MIN, Known, OlderFilter
from rtolap.model.predicate import And, Compare, In, IsNull, Like, Not, Or, Predicate

from tests.support.seeds import notices, so_many

ROWS = 12
NAMES = {"kind": "sort", "size": "size", "place": "place"}
MISSING = ("colour", "weight")
NUMBERS = (0, 1, -3, INT_MAX, INT_MIN, INT_MAX + 1, INT_MIN - 1, 1 << 40, -(1 << 62))


def drawn(rng: random.Random, depth: int = 3) -> Predicate:
    if depth and rng.random() < 0.6:
        terms = tuple(drawn(rng, depth - 1) for _ in range(rng.randrange(0, 4)))
        return rng.choice((And(terms), Or(terms), Not(drawn(rng, depth - 1))))
    column = rng.choice((*NAMES, *MISSING))
    texts, negated = column in ("kind", "place", "colour"), rng.random() < 0.5
    values: tuple[Any, ...] = ("a", "b", "") if texts else NUMBERS
    match rng.randrange(4):
        case 0:
            return IsNull(column, negated)
        case 1:
            return In(column, tuple(rng.sample(values, rng.randrange(0, 3))), negated)
        case 2 if texts:
            return Like(column, rng.choice(("a%", "%", "_", "")), negated)
    return Compare(column, rng.choice(("eq", "ne", "lt", "le", "gt", "ge")), rng.choice((*values, None)))


def run(seed: int) -> None:
    rng = random.Random(seed)

    def column(values: tuple[Any, ...], kind: pa.DataType) -> pa.Array:
        return pa.array([rng.choice((*values, None)) for _ in range(ROWS)], kind)

    older = pa.table(
        {
            "sort": column(("a", "ab", "b"), pa.string()),
            "size": column(NUMBERS[:5], pa.int32()),
            "place": column(("a", ""), pa.string()),
        }
    )
    newest = pa.table(
        {
            "kind": older.column("sort"),
            "size": older.column("size").cast(pa.int64()),
            "place": older.column("place"),
            "colour": pa.nulls(ROWS, pa.string()),
            "weight": pa.nulls(ROWS, pa.int64()),
        }
    )
    filters = OlderFilter(NAMES, {"size"}, "sort")
    for number in range(200):
        predicate = drawn(rng)
        for each in (predicate, Not(predicate)):  # NULL and false differ in the second
            translated = filters.of(each)
            if isinstance(translated, Known):
                found = pa.array([translated.value is True] * ROWS)
            else:
                found = mask(older, translated)
            assert found.equals(mask(newest, each)), f"rows differ: seed {seed}, number {number}: {each}"


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(10)))
def test_drawn_filters_hold_for_the_same_rows(seed: int) -> None:
    run(seed)


def test_a_null_that_is_false_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        OlderFilter, "_null", lambda self: In(self.any_column, ()) if self.any_column else IsNull("sort")
    )
    assert notices(run, 0, "rows differ")


def test_a_number_that_no_int_holds_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = OlderFilter._unless_null
    monkeypatch.setattr(
        OlderFilter, "_unless_null", lambda self, column, holds: whole(self, column, holds=not holds)
    )
    assert notices(run, 0, "rows differ")
