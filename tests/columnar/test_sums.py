"""Sums are those of Python's whole numbers, to the last digit, or refused: never wrapped around."""

from __future__ import annotations

import random
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from rtolap.base.errors import Refused
from rtolap.columnar.reduce import decimals_of_longs, longs_of_decimals, sum_values, sums_fit_longs

MOST = 10**38 - 1
WIDE = pa.decimal128(38, 0)


def total(values: list[int], kind: pa.DataType, target: pa.DataType) -> int:
    found = sum_values(
        pa.array(values).cast(kind) if not pa.types.is_decimal(kind) else decimals(values, kind),
        np.zeros(len(values), np.int64),
        1,
        target,
    )
    return int(found[0].as_py())


def decimals(values: list[int], kind: pa.DataType) -> pa.Array:
    return pa.array([Decimal(value) for value in values], kind)


@pytest.mark.parametrize(
    "values", [[MOST] * 2, [MOST] * 3, [MOST] * 4, [MOST] * 7, [-MOST] * 3, [-MOST] * 4, [MOST, 1]]
)
def test_more_than_38_digits_are_refused_however_often_128_bits_go_round(values: list[int]) -> None:
    with pytest.raises(Refused, match="38 digits"):
        total(values, WIDE, WIDE)


@pytest.mark.parametrize(
    "values",
    [
        [MOST],
        [-MOST],
        [MOST, -MOST, MOST],
        [MOST, MOST, -MOST, -MOST],
        [-1, MOST, 1],
        [0],
        [-1, -1],
        [2**64, -1],
    ],
)
def test_the_last_digit_is_right_at_the_bounds(values: list[int]) -> None:
    assert total(values, WIDE, WIDE) == sum(values)


def test_random_sums_of_any_size() -> None:
    rng = random.Random(38)
    for _ in range(300):
        bound = 10 ** rng.randrange(1, 39) - 1
        values = [rng.randint(-bound, bound) for _ in range(rng.randrange(1, 12))]
        if abs(sum(values)) <= MOST:
            assert total(values, WIDE, WIDE) == sum(values), values
        else:
            with pytest.raises(Refused):
                total(values, WIDE, WIDE)


def test_whole_numbers_beyond_64_bits_are_refused_and_fit_a_decimal() -> None:
    values = [2**63 - 1] * 3
    assert total(values, pa.int64(), WIDE) == sum(values)
    assert total([2**63 - 1, 2**63 - 1, -(2**63)], pa.int64(), pa.int64()) == 2**63 - 2
    with pytest.raises(Refused, match="64 bits"):
        total(values, pa.int64(), pa.int64())


@pytest.mark.parametrize("kind", [pa.decimal128(12, 2), pa.decimal128(38, 2)])
def test_decimals_are_unscaled_longs_and_back_wherever_their_column_begins(kind: pa.DataType) -> None:
    rng = random.Random(7)
    values = [Decimal(rng.randrange(-(10**12), 10**12)).scaleb(-2) for _ in range(50)]
    with_nulls = [None if rng.random() < 0.3 else value for value in values]
    for column in (
        pa.array(values, kind),
        pa.array(with_nulls, kind),
        pa.array(with_nulls, kind).slice(7, 20),
    ):
        longs = longs_of_decimals(column)
        assert longs is not None
        assert longs.to_pylist() == [None if v is None else int(v.scaleb(2)) for v in column.to_pylist()]
        assert decimals_of_longs(longs, kind).equals(column)
    assert longs_of_decimals(pa.array([], kind)).to_pylist() == []


@pytest.mark.parametrize("beyond", [2**63, -(2**63) - 1, MOST, 2**64])
def test_a_decimal_of_more_than_64_bits_is_no_long(beyond: int) -> None:
    assert longs_of_decimals(decimals([1, beyond], WIDE)) is None
    nearest = 2**63 - 1 if beyond > 0 else -(2**63)
    assert longs_of_decimals(decimals([nearest], WIDE)).to_pylist() == [nearest]


def test_whole_numbers_fit_as_long_as_no_choice_of_them_can_leave_64_bits() -> None:
    assert sums_fit_longs(pa.array([], pa.int64()))
    assert sums_fit_longs(pa.array([None, None], pa.int64()))
    assert sums_fit_longs(pa.array([2**61, -(2**61), None], pa.int64()))
    assert not sums_fit_longs(pa.array([2**62, -(2**62)], pa.int64()))
    assert not sums_fit_longs(pa.array([-(2**63)], pa.int64()))
