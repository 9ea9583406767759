"""A bound never lets a sum pass that leaves its type, and lets those pass that are far from it."""

from __future__ import annotations

import random
from decimal import Decimal

import pyarrow as pa
import pytest
from rtolap.column_types import BIGINT, parse_type
from rtolap.columnar.sum_bounds import (
    DECIMAL_MAX,
    INT64_MAX,
    SumBound,
    largest_of_column,
    sum_limit,
    whole_words,
)

from tests.support.seeds import so_many

SCALED = parse_type("decimal(38,2)")


def _drawn(dice: random.Random, limit: int) -> list[int | None]:
    """Numbers about the edge where a sum of all leaves the type, some null."""
    rows = dice.randint(1, 30)
    most = dice.choice((limit, limit // rows, limit // rows + 1, limit // (4 * rows), 3))
    numbers: list[int | None] = [dice.choice((most, -most, dice.randint(-most, most))) for _ in range(rows)]
    if dice.random() < 0.3:
        numbers[dice.randrange(rows)] = None
    return numbers


@pytest.mark.parametrize("seed", range(so_many(60)))
@pytest.mark.parametrize("kind", ["bigint", "decimal"])
def test_sums_that_pass_are_within_their_type(seed: int, kind: str) -> None:
    dice = random.Random(seed)
    column_type = BIGINT if kind == "bigint" else SCALED
    limit = sum_limit(column_type)
    assert limit == (INT64_MAX if kind == "bigint" else DECIMAL_MAX)
    bound = SumBound(limit)
    passed, values = True, list[int]()
    for _ in range(dice.randint(1, 3)):
        numbers = _drawn(dice, limit)
        if kind == "bigint":
            column = pa.array([0, *numbers], pa.int64()).slice(1)
        else:
            scaled = [None if n is None else Decimal((int(n < 0), Decimal(abs(n)).as_tuple().digits, -2))
                      for n in numbers]  # fmt: skip
            column = pa.array([Decimal(0), *scaled], pa.decimal128(38, 2)).slice(1)
        largest = largest_of_column(column)
        values += [n for n in numbers if n is not None]
        assert largest >= max((abs(n) for n in numbers if n is not None), default=0)
        assert len(whole_words(column)) == len(numbers)
        passed = bound.add_numbers(largest, len(numbers))
    assert passed == (bound.bound <= limit)
    if sum(map(abs, values)) > limit:
        assert not passed
    if passed:
        assert abs(sum(values)) <= limit


def test_small_numbers_pass_and_nothing_is_no_number() -> None:
    assert SumBound(INT64_MAX).add_numbers(largest_of_column(pa.array([5, None], pa.int64())), 10**9)
    assert largest_of_column(pa.array([], pa.int64())) == 0
    assert largest_of_column(pa.array([-(2**63)], pa.int64())) == 2**63
    assert SumBound(INT64_MAX).add_numbers(INT64_MAX, 1)
    assert not SumBound(INT64_MAX).add_numbers(2**63, 1)
    assert sum_limit(parse_type("double")) is None
