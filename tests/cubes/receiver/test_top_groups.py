"""The first groups of an answer hold the first rows in every order that begins with theirs."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from rtolap.cubes.receiver.answers import top_groups
from rtolap.cubes.receiver.answers.top_groups import first_groups, spread_groups
from rtolap.protocols.receiver.messages import TopGroups
from rtolap.scan import first_groups as chosen

from tests.support.seeds import so_many

TYPES: dict[str, tuple[pa.DataType, Any]] = {
    "whole": (pa.int64(), int),
    "decimal": (pa.decimal128(38, 2), lambda value: Decimal(value) / 4),
    "double": (pa.float64(), lambda value: value / 8),
    "moment": (pa.timestamp("us"), lambda value: value + 1_000_000),
}


def drawn(dice: random.Random) -> tuple[pa.Table, TopGroups]:
    kind, made = TYPES[dice.choice(tuple(TYPES))]
    rows, spread = dice.randrange(1, 60), dice.choice((3, 20, 10_000))
    nulls = dice.choice((0.0, 0.2, 0.9))
    values = [None if dice.random() < nulls else made(dice.randrange(-spread, spread)) for _ in range(rows)]
    names = pa.array([None, *(f"k{number}" for number in range(1, rows))])
    keys = names.dictionary_encode() if dice.random() < 0.5 else names
    table = pa.table({"k": keys, "v": pa.array(values, kind)}).take(dice.sample(range(rows), rows))
    return table, TopGroups("v", dice.random() < 0.5, dice.random() < 0.5, dice.randrange(1, 20))


def in_order(table: pa.Table, top: TopGroups) -> list[tuple[object, object]]:
    """Return the first rows, those of equal values by their keys."""
    rows = list(zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True))
    rows.sort(key=lambda row: str(row[0]))
    some = sorted((row for row in rows if row[1] is not None), key=lambda row: row[1], reverse=top.descending)
    none = [row for row in rows if row[1] is None]
    return (none + some if top.nulls_first else some + none)[: top.rows]


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(200)))
def test_first_groups_hold_the_first_rows_whatever_follows(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top_groups, "GROUPS_MIN", 0)
    dice = random.Random(seed)
    table, top = drawn(dice)
    found = first_groups(table, ("k",), top)
    assert in_order(found, top) == in_order(table, top)
    last = in_order(table, top)[-1][1]
    needed = [row for row in zip(*table.to_pydict().values(), strict=True) if row[1] == last]
    assert set(needed) <= set(zip(*found.to_pydict().values(), strict=True)), "those that equal the last one"


def test_a_spread_answer_says_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen, "GROUPS_MIN", 0)
    values = [Decimal(number).scaleb(-2) for number in (500, 400, 300, 200, 100)] + [None]
    keys = pa.array(["a", "b", "c", "d", "e", None]).dictionary_encode()
    table = pa.table({"k": keys, "v": pa.array(values, pa.decimal128(38, 2))})

    def asked(rows: int, **also: Any) -> tuple[list[str | None], str | None]:
        top = TopGroups("v", True, False, rows, spread=True, **also)
        found, left = spread_groups(table, ("k",), top)
        return found["k"].to_pylist(), left.largest

    assert asked(2) == (["a", "b"], "3.00")
    assert asked(1, among=("d", None)) == (["a", "d", None], "4.00")
    assert asked(1, above="3.00") == (["a", "b", "c"], "2.00")
    assert asked(5) == (["a", "b", "c", "d", "e"], "0")
    assert asked(5, among=(None,)) == (["a", "b", "c", "d", "e", None], None)
    assert asked(6) == (["a", "b", "c", "d", "e", None], None)


def test_few_of_many_groups_are_left() -> None:
    table = pa.table({"k": [f"k{number}" for number in range(5000)], "v": list(range(5000))})
    assert first_groups(table, ("k",), TopGroups("v", True, False, 3))["v"].to_pylist() == [4997, 4998, 4999]
    assert first_groups(table, ("k",), TopGroups("v", False, True, 2))["v"].to_pylist() == [0, 1]


@pytest.mark.parametrize("coded", [True, False])
def test_rows_of_one_group_that_lie_apart_are_all_sent(coded: bool) -> None:
    names = pa.array([*(f"k{number}" for number in range(5000)), "k7"])
    table = pa.table({"k": names.dictionary_encode() if coded else names, "v": [*range(5000), 9000]})
    assert first_groups(table, ("k",), TopGroups("v", True, False, 3)) is table


def test_doubles_that_are_not_finite_are_all_sent() -> None:
    table = pa.table({"k": list(range(5000)), "v": [float("nan"), *map(float, range(4999))]})
    assert first_groups(table, ("k",), TopGroups("v", True, False, 3)) is table
