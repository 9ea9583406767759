"""FIRST and LAST: by event time, then partition, then offset, whatever the order of events and merges."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import sqlglot
from rtolap.aggregates.by_time import Earliest, Latest
from rtolap.base.errors import Corrupted, QueryError
from rtolap.column_types import BINARY
from rtolap.columnar.grouped import GroupedArray
from rtolap.columnar.picked import EventOrder, texts
from rtolap.query.catalogue import QueryCatalogue
from rtolap.query.sql.dialect import RtolapSql
from rtolap.query.sql.rules import Context, rewrite

from tests.support.aggregates.measured import SCHEMA
from tests.support.seeds import so_many

GROUPS = 5
Event = tuple[int, int, int, int, str | None]  # group, time, partition, offset, value


def picked(events: list[Event], accumulator: Earliest | Latest) -> pa.Array:
    groups, times, partitions, offsets, values = zip(*events, strict=True) if events else ([],) * 5
    order = EventOrder(np.array(times, np.int64), np.array(partitions, np.int32), np.array(offsets, np.int64))
    grouped = GroupedArray(pa.array(values, pa.string()), np.array(groups, np.int64), GROUPS, order)
    return accumulator.begin(grouped, BINARY)


def recount(events: list[Event], best: Callable[[list[Event]], Event]) -> list[str | None]:
    found: list[str | None] = []
    for group in range(GROUPS):
        own = [event for event in events if event[0] == group and event[4] is not None]
        found.append(best(own)[4] if own else None)
    return found


def first(events: list[Event]) -> Event:
    return min(events, key=lambda event: event[1:4])


def last(events: list[Event]) -> Event:
    return max(events, key=lambda event: event[1:4])


@pytest.mark.parametrize(("accumulator", "best"), [(Earliest(), first), (Latest(), last)])
@pytest.mark.parametrize("seed", range(so_many(20)))
def test_any_order_and_any_merge_give_one_answer(
    seed: int, accumulator: Earliest | Latest, best: Callable[[list[Event]], Event]
) -> None:
    rng = random.Random(seed)
    places = rng.sample([(p, o) for p in (0, 1, 300) for o in range(40)], rng.randrange(60))
    times = [-(1 << 40), -1, 0, 1, 255, 256, 1 << 40, rng.randrange(1 << 42)]
    events: list[Event] = [
        (rng.randrange(GROUPS - 1), rng.choice(times), *place, rng.choice([None, "", f"v{number}"]))
        for number, place in enumerate(places)
    ]
    rng.shuffle(events)
    expected = recount(events, best)
    assert texts(picked(events, accumulator)).to_pylist() == expected
    cut = rng.randrange(len(events) + 1)
    parts = [picked(events[:cut], accumulator), picked(events[cut:], accumulator)]
    rng.shuffle(parts)
    ids = np.tile(np.arange(GROUPS), 2)
    merged = accumulator.merge(GroupedArray(pa.concat_arrays(parts), ids, GROUPS), BINARY)
    assert texts(merged).to_pylist() == expected


@pytest.mark.parametrize(
    "values",
    [
        [-(1 << 63), (1 << 63) - 1],
        [Decimal("0.0000000001"), Decimal("-9999999999999999999999999999.9999999999")],
        [5e-324, 1.7976931348623157e308, -0.0, 0.1],
        [True, False],
        [date(1, 1, 1), date(9999, 12, 31)],
        [datetime(1, 1, 1, 0, 0, 0, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)],
        ["", "日本 😀", "\x00\n"],
    ],
)
def test_a_value_comes_back_as_it_was(values: list[Any]) -> None:
    column = pa.array(values, pa.decimal128(38, 10) if isinstance(values[0], Decimal) else None)
    count = len(values)
    zeros = np.zeros(count, np.int64)
    order = EventOrder(zeros, zeros.astype(np.int32), zeros)
    found = texts(Latest().begin(GroupedArray(column, np.arange(count), count, order), BINARY))
    assert found.cast(column.type).to_pylist() == values


@pytest.mark.parametrize("image", [b"", b"x" * 19, b"x" * 20 + b"\xff"])
def test_other_bytes_are_named(image: bytes) -> None:
    with pytest.raises(Corrupted, match="no value of FIRST or LAST"):
        texts(pa.array([None, image]))


def rewritten(call: str) -> str:
    tree = sqlglot.parse_one(f"SELECT {call} v FROM measured", dialect=RtolapSql)
    return rewrite(tree, Context(QueryCatalogue(cubes={"measured": SCHEMA}), lambda node: node.this)).sql


def test_the_names_of_windows_are_other_spellings() -> None:
    assert rewritten("FIRST_VALUE(price)") == rewritten("FIRST(price)")
    assert rewritten("LAST_VALUE(price)") == rewritten("LAST(price)")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("FIRST(region)", "cannot answer"),
        ("LAST(CASE WHEN region > 0 THEN whole ELSE big END)", "LAST of big and whole"),
    ],
)
def test_what_cannot_be_answered_says_why(call: str, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        rewritten(call)
