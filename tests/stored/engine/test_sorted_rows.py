"""The order of keys against Python's own sort, for columns of every kind and range."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from rtolap.stored.engine.rows.keys import sort, sorted_rows

from tests.support.seeds import so_many

SEEDS = so_many(60)
_START = datetime(1969, 1, 1)


def column(rng: random.Random, rows: int) -> pa.Array:
    """Draw a column whose values are far apart, close together, or nearly all the same."""
    drawn: tuple[pa.DataType, Any] = rng.choice(
        (
            (pa.int64(), lambda: rng.choice((-(1 << 63), (1 << 63) - 1, rng.randrange(-5, 5)))),
            (pa.int64(), lambda: rng.randrange(-(1 << 62), 1 << 62)),
            (pa.int64(), lambda: rng.randrange(1 << rng.randrange(1, 40))),
            (pa.int32(), lambda: rng.randrange(-3, 3)),
            (pa.timestamp("us"), lambda: _START + timedelta(microseconds=rng.randrange(1 << 55))),
            (pa.date32(), lambda: date(1960, 1, 1) + timedelta(days=rng.randrange(9000))),
            (pa.bool_(), lambda: rng.random() < 0.5),
            (pa.string(), lambda: "".join(rng.choices("abé", k=rng.randrange(4)))),
            (pa.decimal128(9, 2), lambda: Decimal(rng.randrange(-1000, 1000)).scaleb(-2)),
            (pa.decimal128(38, 2), lambda: Decimal(rng.randrange(-(10**30), 10**30)).scaleb(-2)),
        )
    )
    kind, draw = drawn
    few = [draw() for _ in range(3)]
    share, nulls = rng.choice((0.0, 0.5, 0.99)), rng.choice((0.0, 0.0, 0.3))
    values = [rng.choice(few) if rng.random() < share else draw() for _ in range(rows)]
    return pa.array([None if rng.random() < nulls else value for value in values], kind)


def by_hand(keys: list[pa.Array]) -> list[tuple[Any, ...]]:
    def in_order(value: Any) -> Any:
        if value is None:
            return (0,)
        return (1, value.encode() if isinstance(value, str) else value)

    return [tuple(map(in_order, row)) for row in zip(*(key.to_pylist() for key in keys), strict=True)]


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(SEEDS))
def test_keys_are_sorted_as_by_hand(seed: int) -> None:
    rng = random.Random(seed)
    rows = rng.choice((1, 2, 7, 300))
    keys = [column(rng, rows) for _ in range(rng.choice((1, 1, 2, 3)))]
    ties = [column(rng, rows)] if rng.random() < 0.3 else []
    told, keys_told = by_hand(keys + ties), by_hand(keys)
    expected = sorted(range(rows), key=lambda row: (told[row], row))
    order = sort(keys, ties)
    found = list(range(rows)) if order.rows is None else order.rows.tolist()
    assert found == expected
    assert order.starts.tolist() == [
        at for at in range(rows) if not at or keys_told[expected[at]] != keys_told[expected[at - 1]]
    ]
    alone = sorted_rows(keys)
    assert (list(range(rows)) if alone is None else alone.tolist()) == sorted(
        range(rows), key=lambda row: (keys_told[row], row)
    )


def test_rows_that_come_in_order_stay_where_they_are() -> None:
    first, second = pa.array([1, 1, 2, 2, 9]), pa.array([5, 5, -1, 7, 7])
    assert sorted_rows([first, second]) is None
    assert sort([first]).starts.tolist() == [0, 2, 4]
