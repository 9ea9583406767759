"""Variances are exact: beside fractions of any size, at the ends of the types, where sums of doubles fail."""

from __future__ import annotations

import random
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from rtolap.aggregates.variance import LOW_BITS, HighSquares, LowSquares, variance
from rtolap.column_types import decimal
from rtolap.columnar.grouped import GroupedArray
from rtolap.columnar.squares import square_parts
from rtolap.query.engine_functions.exact_variance import exact_variance

from tests.support.seeds import so_many

SEED = 7300
SUM = decimal(38, 0)
ENDS = (0, 1, -1, 2**31, 2**32 - 1, -(2**32) - 1, 2**63 - 1, -(2**63), 1 - 2**63, 3 * 2**61)


def drawn(rng: random.Random, size: int) -> list[int]:
    return [
        rng.choice((rng.choice(ENDS), rng.randrange(-(2**63), 2**63), rng.randrange(-99, 99)))
        for _ in range(size)
    ]


def test_both_parts_of_a_square_are_the_square() -> None:
    numbers = [*ENDS, *drawn(random.Random(SEED), 2_000)]
    column = pa.array([*numbers, None], pa.int64())
    low, high = (square_parts(column, part).to_pylist() for part in ("low", "high"))  # type: ignore[arg-type]
    assert low.pop() is None
    assert high.pop() is None
    assert [(int(above) << LOW_BITS) + below for above, below in zip(high, low, strict=True)] == [
        number * number for number in numbers
    ]


def test_squares_of_decimals_are_those_of_their_unscaled_values() -> None:
    column = pa.array([Decimal("-1.25"), None, Decimal("999.99")], pa.decimal128(18, 2)).slice(1)
    low, high = (square_parts(column, part).to_pylist() for part in ("low", "high"))  # type: ignore[arg-type]
    assert (low, high) == ([None, 99_999**2 % 2**32], [None, Decimal(99_999**2 >> 32)])


@pytest.mark.parametrize("seed", range(so_many(20)))
def test_pieces_in_any_order_give_the_variance_of_the_whole_rounded_once(seed: int) -> None:
    rng = random.Random(SEED + seed)
    numbers = drawn(rng, rng.randrange(2, 200))
    cuts = sorted(rng.randrange(len(numbers)) for _ in range(4))
    pieces = [numbers[first:end] for first, end in pairwise([0, *cuts, len(numbers)])]
    rng.shuffle(pieces)
    sums = []
    for accumulator in (HighSquares(), LowSquares()):
        parts = [accumulator.begin(grouped(pa.array(piece, pa.int64())), SUM) for piece in pieces]
        sums.append(accumulator.merge(grouped(pa.concat_arrays(parts)), SUM))
    mean = Fraction(sum(numbers), len(numbers))
    for missing in (0, 1):
        exact = sum((number - mean) ** 2 for number in numbers) / (len(numbers) - missing)
        count, total = pa.array([len(numbers)]), pa.array([str(sum(numbers))])
        (found,) = exact_variance(count, total, sums[0], sums[1], pa.array([missing])).to_pylist()
        assert found == float(exact)


def grouped(column: pa.Array) -> GroupedArray:
    return GroupedArray(column, np.zeros(len(column), np.int64), 1)


def test_values_far_from_zero_and_near_each_other_keep_all_digits() -> None:
    values = [10**17 + each for each in (1, 2, 3, 4)]  # doubles know them to 16 only
    assert variance(4, sum(values), sum(each * each for each in values), 0, 0) == 1.25


def test_digits_behind_the_point_are_those_of_the_sum() -> None:
    assert variance(2, 30, 10**2 + 20**2, 0, 2) == 0.0025


@pytest.mark.parametrize(("count", "missing"), [(0, 0), (0, 1), (1, 1)])
def test_too_few_values_have_no_variance(count: int, missing: int) -> None:
    assert variance(count, count, count, missing, 0) is None
