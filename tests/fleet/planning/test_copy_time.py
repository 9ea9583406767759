"""How long copies take while their partitions are written to, beside a count second by second."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from rtolap.fleet.planning.copy_time import Copies, copy_time
from rtolap.fleet.planning.drain import plan_drain
from rtolap.fleet.planning.plan import Limits
from rtolap.fleet.planning.plan_file import plan_from, plan_json

from tests.support.fleet.hand_made import hand_made

RACKS = {1: "a", 2: "b", 3: "a", 4: "b"}


def copies_of(*rows: tuple[int, int, int, int, float], between_disks: bool = False) -> Copies:
    """Each of a partition of its own: leader, replicas, taker, bytes, bytes written a second."""
    return Copies(
        np.arange(len(rows), dtype=np.int32),
        np.array([row[2] for row in rows], np.int32),
        np.array([row[3] for row in rows], np.int64),
        np.full(len(rows), between_disks),
        np.array([row[0] for row in rows], np.int32),
        np.array([row[1] for row in rows], np.int64),
        np.array([row[4] for row in rows]),
    )


def counted_s(throttle: int, *copies: tuple[int, float]) -> int:
    """One copy after the other: each second takes what the throttle lets through, and what was written."""
    seconds = 0
    for size, taken_per_s in copies:
        lacking = float(size)
        while lacking > 0:
            lacking += taken_per_s - throttle
            seconds += 1
    return seconds


def test_what_is_written_meanwhile_is_copied_too() -> None:
    # the leader sends what is written to the copy and to one replica in sync
    rows = ((1, 2, 3, 9_000, 10.0), (1, 2, 4, 6_000, 0.0))
    found = copy_time(copies_of(*rows), 100)
    assert found.expected_s == 173  # 9000 at 80 a second, 6000 at 100
    assert found.expected_s == pytest.approx(counted_s(100, (9_000, 20.0), (6_000, 0.0)), abs=1)
    assert (found.written_bytes_per_s, found.unknown, found.outpaced.size) == (10, 0, 0)


def test_the_broker_that_takes_most_decides_where_it_has_more_to_do() -> None:
    rows = ((1, 1, 9, 4_000, 30.0), (2, 1, 9, 4_000, 50.0), (3, 1, 9, 4_000, 0.0))
    expected = counted_s(100, (4_000, 30.0), (4_000, 50.0), (4_000, 0.0))
    assert copy_time(copies_of(*rows), 100).expected_s == pytest.approx(expected, abs=2)


def test_between_disks_only_the_copy_itself_is_written_to() -> None:
    found = copy_time(copies_of((1, 3, 1, 1_000, 50.0), between_disks=True), 100)
    assert found.expected_s == 20


def test_without_rates_bytes_and_throttle_alone_count() -> None:
    found = copy_time(copies_of((1, 3, 4, 1_001, np.nan)), 100)
    assert (found.expected_s, found.unknown) == (11, 1)


def test_a_throttle_at_what_is_written_has_no_end_and_the_plan_says_so() -> None:
    fleet = hand_made(RACKS, {"t": [[1, 2], [2, 3]]})
    rates = replace(fleet.partitions, bytes_in_per_s=np.array([600.0, 1.0]))
    fleet = replace(fleet, partitions=rates)
    plan = plan_drain(fleet, [1], limits=Limits(throttle_bytes_per_s=1_000))
    assert plan.copy_time.expected_s is None
    assert plan.copy_time.needed_bytes_per_s == 2_400  # it goes to one replica in sync and to the copy
    assert "t-0" in plan.why[-1]
    assert "2400 bytes a second" in plan.why[-1]
    assert plan_from(plan_json(plan)).copy_time.expected_s is None
    enough = plan_drain(fleet, [1], limits=Limits(throttle_bytes_per_s=2_400))
    assert enough.copy_time.expected_s == 1
    assert len(enough.why) == len(plan.why) - 1
