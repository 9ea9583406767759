"""The division of a call's events by shares."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from rtolap.sep.shares.division import divide, shares_of

from tests.support.seeds import so_many
from tests.support.sep.batches import Event, batch_of, keys_of
from tests.support.sep.share_numbers import share_of


def test_a_row_has_the_same_share_in_every_region_and_table_and_alone() -> None:
    random = Random(3)
    rows = [random.randbytes(random.randint(1, 60)) for _ in range(200)]
    events = [Event(f"r{at % 7}", at, row, table=f"t{at % 3}") for at, row in enumerate(rows * 2)]
    parts = divide(batch_of(events), 5)
    found: dict[bytes, set[int]] = {}
    for share, part in parts:
        for row in part.events["row"].to_pylist():
            found.setdefault(row, set()).add(share)
    assert {row: {share_of(row, 5)} for row in rows} == found


@pytest.mark.seeded
def test_the_parts_of_a_call_hold_each_event_once_in_the_order_of_the_call() -> None:
    for seed in range(so_many(50)):
        random = Random(seed)
        count = random.randint(1, 9)
        events = [
            Event("r", at, random.randbytes(random.randint(0, 20))) for at in range(random.randint(0, 60))
        ]
        batch = batch_of(events)
        parts = divide(batch, count)
        assert len({share for share, _ in parts}) == len(parts)
        assert Counter(key for _, part in parts for key in keys_of(part)) == Counter(keys_of(batch)), seed
        for share, part in parts:
            assert 0 <= share < count
            ids = part.events["sequence_id"].to_pylist()
            assert ids == sorted(ids)
            assert part.events["first_cell"].to_pylist() == list(range(part.num_events))


def test_shares_of_a_slice_are_those_of_the_whole() -> None:
    rows = pa.array([b"%05d" % number for number in range(1000)], pa.binary())
    whole = shares_of(rows, 7)
    assert np.array_equal(shares_of(rows.slice(123, 321), 7), whole[123:444])


def test_shares_do_not_change_from_version_to_version() -> None:
    """A share's journal remembers its rows: another hash would deliver what was delivered again."""
    assert [share_of(row, 3) for row in (b"a", b"b", b"row-000001", b"\x00\xff", b"x" * 40)] == [
        1,
        2,
        0,
        1,
        2,
    ]


def test_rows_that_count_up_are_spread_evenly() -> None:
    rows = pa.array([b"%08d" % number for number in range(30_000)], pa.binary())
    counts = np.bincount(shares_of(rows, 3))
    assert counts.min() > 9_500
