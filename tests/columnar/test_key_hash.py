"""Hashes of keys are equal for equal keys, whatever table they stand in, and divide rows evenly."""

from __future__ import annotations

import math
import random
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from rtolap.columnar.key_hash import hash_keys

from tests.support.seeds import so_many

VALUES: dict[pa.DataType, tuple[Any, ...]] = {
    pa.string(): (None, "", "a", "ab", "Ünal", "日本 😀", "a\0"),
    pa.int32(): (None, 0, -1, 2**31 - 1),
    pa.int64(): (None, 0, 1, -(2**63), 2**63 - 1),
    pa.bool_(): (None, True, False),
    pa.float64(): (None, 0.0, 1.5, math.inf, -math.inf, math.nan),
    pa.date32(): (None, date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)),
    pa.timestamp("us"): (None, datetime(1, 1, 1), datetime(1970, 1, 1), datetime(2013, 1, 1, 0, 0, 0, 1)),
    pa.decimal128(38, 2): (None, Decimal("0.00"), Decimal("-0.01"), Decimal(10**35), Decimal(-(10**35))),
}


@pytest.mark.seeded
def test_drawn_keys_have_the_same_hash_in_every_table_and_others_another() -> None:
    for seed in range(so_many(100)):
        rng = random.Random(seed)
        kinds = rng.choices(list(VALUES), k=rng.randint(1, 4))
        known: dict[tuple[str, ...], int] = {}
        for _ in range(3):
            rows = [tuple(rng.choice(VALUES[kind]) for kind in kinds) for _ in range(rng.randint(1, 50))]
            cut = rng.randint(0, len(rows))
            columns = [
                pa.chunked_array(
                    [pa.array([row[at] for row in part], kind) for part in (rows[:cut], rows[cut:])]
                )
                for at, kind in enumerate(kinds)
            ]
            for row, hashed in zip(rows, hash_keys(columns, len(rows)).tolist(), strict=True):
                assert known.setdefault(tuple(map(repr, row)), hashed) == hashed, (seed, row)
        assert len(set(known.values())) == len(known), seed


def test_doubles_that_compare_equal_and_all_nan_have_one_hash() -> None:
    zeros, nan = pa.array([0.0, -0.0]), np.array([0x7FF8000000000000, 0xFFF8000000000001], np.uint64)
    assert len(set(hash_keys([zeros], 2).tolist())) == 1
    assert len(set(hash_keys([pa.array(nan.view(np.float64))], 2).tolist())) == 1


def test_the_high_bits_divide_consecutive_numbers_and_short_texts_evenly() -> None:
    for column in (pa.array(range(64_000)), pa.array([str(number) for number in range(64_000)])):
        parts = np.bincount((hash_keys([column], 64_000) >> np.uint64(58)).astype(np.int64), minlength=64)
        assert 800 < parts.min() < parts.max() < 1_200
