"""Rows of equal keys get one group and others another, whichever way the groups are found."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from rtolap.scan import groups as grouping
from rtolap.scan import numbers
from rtolap.scan.groups import group, group_in_order, keys_of_groups
from rtolap.scan.keys import Coded, code

SEEDS = range(12)


def _columns(seed: int) -> list[pa.Array]:
    """Texts, numbers and days in any order, and hours whose equal values stand together; nulls in some."""
    dice = random.Random(seed)
    rows = dice.choice((1, 7, 400, 3000))
    hour = datetime(2026, 1, 1)
    hours = sorted(hour + timedelta(hours=dice.randrange(dice.choice((1, 3, 50)))) for _ in range(rows))
    texts = [dice.choice((None, "", "a", "b", "ä")) for _ in range(rows)]
    return [
        pa.array(hours, pa.timestamp("us")),
        pa.array(texts, pa.string()).dictionary_encode(),
        pa.array([dice.choice((None, -1, 0, 2**40)) for _ in range(rows)], pa.int64()),
        pa.array([date(2026, 1, dice.randint(1, 3)) for _ in range(rows)], pa.date32()),
        pa.array(sorted(dice.randrange(rows) for _ in range(rows)), pa.int32()),
    ][: dice.randint(1, 5)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("by", ["address", "hash"])
def test_groups_are_the_distinct_keys(seed: int, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping, "_SLOTS_MIN", 1 << 20 if by == "address" else 0)
    monkeypatch.setattr(grouping, "_SLOTS_PER_ROW_MAX", 1 << 20 if by == "address" else 0)
    columns = _columns(seed)
    keys = [code(column) for column in columns]
    found = group(keys, len(columns[0]))
    rows = list(zip(*(column.to_pylist() for column in columns), strict=True))
    assert found.size == len(set(rows))
    assert [rows[place] for place in found.first[found.ids].tolist()] == rows
    back = zip(*(keys_of_groups(key, found).to_pylist() for key in keys), strict=True)
    assert list(back) == [rows[place] for place in found.first.tolist()]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_column_in_runs_gets_the_codes_of_its_values(seed: int) -> None:
    dice = random.Random(seed)
    values = [value for value in (3, -5, 3, 2**40) for _ in range(dice.randint(20, 90))]
    column = pa.array([0, *values]).slice(1)
    coded = code(column)
    assert coded.values is not None
    assert coded.radix == len(coded.values) + 1
    assert coded.values.take(pa.array(coded.codes)).to_pylist() == values
    assert len(np.unique(coded.codes)) == 3


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("by", ["address", "sorting", "dense numbers"])
def test_groups_in_order_ascend_with_the_codes(seed: int, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping, "_SLOTS_MIN", 1 << 20 if by == "address" else 0)
    monkeypatch.setattr(grouping, "_SLOTS_PER_ROW_SORTED_MAX", 1 << 20 if by == "address" else 0)
    monkeypatch.setattr(numbers, "RADIX_MAX", 8 if by == "dense numbers" else 1 << 62)
    dice = np.random.default_rng(seed)
    rows, columns = int(dice.integers(0, 500)), int(dice.integers(0, 4))
    keys = [Coded(dice.integers(0, 6, rows), 6, None) for _ in range(columns)]
    found = group_in_order(keys, rows)
    codes = list(zip(*(key.codes.tolist() for key in keys), strict=True)) or [()] * rows
    assert [codes[place] for place in found.first.tolist()] == sorted(set(codes))
    assert [codes[place] for place in found.first[found.ids].tolist()] == codes
