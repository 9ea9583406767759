"""Partitions are left out only where a filter cannot be true."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

import pyarrow as pa
import pytest
from rtolap.columnar.filter import mask
from rtolap.model.predicate import And, Compare, CompareOp, In, IsNull, Not, Or, Predicate
from rtolap.query.plan import TimeRange
from rtolap.query.sql.pruning import instants

START = datetime(2024, 2, 28, 23, 59, 59, 999_000)
OPS: tuple[CompareOp, ...] = ("eq", "ne", "lt", "le", "gt", "ge")
EPOCH = datetime(1970, 1, 1)


def moment(rng: random.Random) -> datetime:
    return START + timedelta(microseconds=rng.choice([0, 1, 499, 500, 999, 1000, 1001, 86_400_000_000]))


def random_predicate(rng: random.Random, depth: int = 3) -> Predicate:
    pick = rng.random()
    if depth and pick < 0.5:
        terms = tuple(random_predicate(rng, depth - 1) for _ in range(rng.randint(1, 3)))
        return And(terms) if pick < 0.25 else Or(terms)
    if depth and pick < 0.55:
        return Not(random_predicate(rng, depth - 1))
    if pick < 0.7:
        values = tuple(str(moment(rng)) for _ in range(rng.randint(1, 3)))
        return In("at", values, negated=rng.random() < 0.3)
    if pick < 0.8:
        return Compare("other", rng.choice(OPS), rng.randint(0, 2))
    if pick < 0.85:
        return IsNull("at", negated=rng.random() < 0.5)
    return Compare("at", rng.choice(OPS), str(moment(rng)))


@pytest.mark.parametrize("seed", range(200))
def test_no_row_that_passes_is_outside(seed: int) -> None:
    rng = random.Random(seed)
    predicate = random_predicate(rng)
    at = [moment(rng) for _ in range(40)]
    table = pa.table({"at": pa.array(at, pa.timestamp("us")), "other": [rng.randint(0, 2) for _ in at]})
    found = instants(predicate, "at")
    for passed in table.filter(mask(table, predicate)).column("at").to_pylist():
        ms = (passed - EPOCH) // timedelta(milliseconds=1)
        assert found.overlaps(ms, ms + 1), f"{predicate} is true for {passed}"


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (Compare("at", "eq", "1970-01-01 00:00:01.000500"), TimeRange(1000, 1001)),
        (Compare("at", "lt", "1970-01-01 00:00:01"), TimeRange(None, 1000)),
        (Compare("at", "lt", "1970-01-01 00:00:01.000001"), TimeRange(None, 1001)),
        (Compare("at", "ge", "1970-01-02"), TimeRange(86_400_000, None)),
        (
            And((Compare("at", "ge", "1970-01-02"), Compare("at", "lt", "1970-01-03"))),
            TimeRange(86_400_000, 172_800_000),
        ),
        (Or((Compare("at", "eq", "1970-01-01"), Compare("other", "eq", 1))), TimeRange()),
        (In("at", ("1970-01-01", "1970-01-02")), TimeRange(0, 86_400_001)),
        (None, TimeRange()),
    ],
)  # fmt: skip
def test_ranges_are_as_narrow_as_milliseconds_are(predicate: Predicate | None, expected: TimeRange) -> None:
    assert instants(predicate, "at") == expected
