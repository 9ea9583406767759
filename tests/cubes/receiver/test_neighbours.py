"""Tables become one only with their neighbours: a range must not cover what the table does not hold."""

from __future__ import annotations

import random
from itertools import pairwise

import pyarrow as pa
import pytest
from rtolap.cubes.receiver.local.align import Ranges
from rtolap.cubes.receiver.local.tables import LocalSegment, LocalTable, appended, merged, runs, substituted

EMPTY = pa.table({"x": pa.array([], pa.int64())})


def table(start: int, end: int, *, level: int = 0, version: int = 1) -> LocalTable:
    return LocalTable(EMPTY, end - start, {0: (start, end)}, (version,), level=level)


def bounds(segment: LocalSegment) -> list[tuple[int, int]]:
    return sorted(one.ranges[0] for one in segment.tables)


def disjoint(segment: LocalSegment) -> bool:
    found = bounds(segment)
    return all(before[1] <= after[0] for before, after in pairwise(found))


def test_a_table_read_again_is_not_merged_past_those_behind_it() -> None:
    """It stands with level 0 where the old one, of a higher level, stood."""
    segment = LocalSegment(0, (table(0, 8), table(8, 16, level=1)))
    for at in range(16, 40):
        segment = appended(segment, [table(at, at + 1)], lambda tables: EMPTY)
        assert disjoint(segment), bounds(segment)
    assert sum(one.events for one in segment.tables) == 40


def test_a_run_ends_at_a_table_of_its_version_that_is_not_taken() -> None:
    one, excluded, two, other = table(0, 5), table(5, 9, level=7), table(9, 12), table(20, 25, version=2)
    segment = LocalSegment(0, (one, other, excluded, two))
    found = runs(segment, lambda each: each.level != 7)
    assert sorted(found, key=lambda run: run[0].ranges[0]) == [[one], [two], [other]]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_ranges_stay_disjoint(seed: int) -> None:
    """Consumed, flushed in part, cut and read again, in any order."""
    rng = random.Random(seed)
    segment = LocalSegment(0)
    fixed: set[int] = set()  # tables that stand for fragments
    at = 0
    for _ in range(300):
        step = rng.random()
        if step < 0.8 or not segment.tables:
            segment = appended(segment, [table(at, at + 1)], lambda tables: EMPTY, fan_out=3)
            at += 1
        elif step < 0.9:
            old = rng.choice(segment.tables)
            again = substituted(segment, [old], [table(*old.ranges[0])])
            assert again is not None
            segment = again
        else:
            for run in runs(segment, lambda each: id(each) not in fixed):
                ranges: Ranges = {0: (run[0].ranges[0][0], run[-1].ranges[0][1])}
                written = merged(run, EMPTY, level=9)
                assert written.ranges == ranges
                fixed.add(id(written))
                after = substituted(segment, run, [written])
                assert after is not None
                segment = after
        assert disjoint(segment), bounds(segment)
    assert sum(one.events for one in segment.tables) == at
