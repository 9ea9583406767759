import tracemalloc
from collections.abc import Iterable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from rtolap.sep.delivery.delivered_edits import DeliveredEdits
from rtolap.sep.delivery.edit_records import RegionEdits, bitmap_of, packed

from tests.support.sep.batches import Event, batch_of, keys_of, puts

Key = tuple[str, int, bytes]


def deliver(memory: DeliveredEdits, events: Iterable[Event], undelivered: Iterable[Key] = ()) -> None:
    batch = batch_of(events)
    left = set(undelivered)
    split = memory.split(batch)
    mask = split.new & np.array([key not in left for key in keys_of(batch)], bool)
    memory.remember(memory.edits_of(batch, split, mask))


def test_an_edit_that_comes_again_is_a_duplicate_and_its_neighbours_are_new() -> None:
    memory = DeliveredEdits()
    deliver(memory, [Event("a", 5, b"r"), Event("a", 7, b"r")])
    split = memory.split(puts("a", [5, 6, 7, 8]))
    assert split.duplicate.tolist() == [True, False, True, False]
    assert split.new.tolist() == [False, True, False, True]
    assert split.late.tolist() == [False, True, False, False]


def test_what_a_server_ships_late_of_a_region_that_left_and_came_back_is_new() -> None:
    memory = DeliveredEdits()
    # in one call: before the region moved away, and after it came back
    deliver(memory, [Event("a", at, b"r") for at in (*range(1, 11), *range(21, 31))])
    split = memory.split(puts("a", range(11, 21)))
    assert split.new.all()
    assert split.late.all()


def test_regions_with_other_rows_do_not_know_of_each_other() -> None:
    memory = DeliveredEdits()
    deliver(memory, [Event("a", 5, b"1"), Event("b", 6, b"2")])
    split = memory.split(batch_of([Event("b", 5, b"2"), Event("a", 6, b"1"), Event("c", 5, b"3")]))
    assert split.new.all()
    assert split.late.tolist() == [True, False, False]


def test_rows_of_an_edit_that_failed_in_part_are_told_apart() -> None:
    memory = DeliveredEdits()
    edit = [Event("a", 5, b"x"), Event("a", 5, b"y"), Event("a", 5, b"z")]
    deliver(memory, edit, undelivered=[("a", 5, b"y")])
    assert memory.split(batch_of(edit)).new.tolist() == [False, True, False]
    deliver(memory, edit)
    assert not memory.split(batch_of(edit)).new.any()
    assert memory.num_edits == 1


def test_an_edit_that_stands_twice_in_a_batch_is_a_duplicate_the_second_time() -> None:
    batch = puts("a", [5, 6, 5, 6, 7], [b"x", b"y"])
    assert DeliveredEdits().split(batch).duplicate.tolist() == [False] * 4 + [True] * 4 + [False] * 2


@given(st.lists(st.integers(1, 6), max_size=12))
def test_edits_in_any_order_are_duplicates_at_each_place_but_their_first(ids: list[int]) -> None:
    """Edits have one row, or two, each of them once."""
    keys = [(at, row) for at in ids for row in (b"x", b"y")[: 1 + at % 2]]
    batch = batch_of([Event("a", sequence_id, row) for sequence_id, row in keys])
    expected = [key in keys[:place] for place, key in enumerate(keys)]
    assert DeliveredEdits().split(batch).duplicate.tolist() == expected


def test_an_id_that_is_used_again_after_a_restored_snapshot_is_no_duplicate() -> None:
    memory = DeliveredEdits()
    deliver(memory, [Event("a", at, b"r", write_time_ms=at) for at in range(1, 100)])
    restored = [Event("a", at, b"r", write_time_ms=1000 + at) for at in range(50, 60)]
    assert memory.split(batch_of(restored)).new.all()
    deliver(memory, restored)
    assert not memory.split(batch_of(restored)).new.any()
    assert memory.highest("a") == 59


def test_the_oldest_are_forgotten_but_of_each_region_its_newest_generation_stays() -> None:
    memory = DeliveredEdits(1000, generation_edits=100)
    deliver(memory, [Event("quiet", at, b"r") for at in range(50)])
    for first in range(0, 5000, 100):
        deliver(memory, [Event("busy", at, b"r") for at in range(first, first + 100)])
    assert memory.num_edits <= 1000
    assert not memory.split(puts("quiet", range(50))).new.any()
    assert not memory.split(puts("busy", range(4200, 5000))).new.any()
    forgotten = memory.split(puts("busy", range(100)))
    assert forgotten.new.all()
    assert forgotten.late.all()


def test_of_too_many_regions_those_without_edits_for_longest_are_forgotten() -> None:
    memory = DeliveredEdits(regions_max=3)
    for region in "abcad":
        deliver(memory, [Event(region, 1 + memory.highest(region) + 1, b"r")])
    assert {record.region for record in memory.records()} == {"a", "c", "d"}
    assert memory.highest("b") == -1
    assert memory.highest("a") >= 0


def test_the_records_of_a_memory_make_an_equal_one() -> None:
    memory, other = DeliveredEdits(), DeliveredEdits()
    deliver(memory, [Event(region, at, region.encode()) for region in "ab" for at in range(0, 500, 3)])
    edit = [Event("a", 901, b"ax"), Event("a", 901, b"ay")]
    deliver(memory, edit, undelivered=[("a", 901, b"ay")])
    other.remember(list(memory.records()))
    assert other.num_edits == memory.num_edits
    for region in "ab":
        batch = puts(region, range(600))
        assert np.array_equal(memory.split(batch).new, other.split(batch).new)
        assert np.array_equal(memory.split(batch).late, other.split(batch).late)
    assert other.split(batch_of(edit)).new.tolist() == [False, True]


def test_ten_million_remembered_edits_take_some_megabytes() -> None:
    memory = DeliveredEdits(10_000_000)
    tracemalloc.start()
    # every third id, which is the worst for runs, of a hundred regions
    ids = np.arange(100_000, dtype=np.int64) * 3
    record = packed(bitmap_of(ids))
    memory.remember([RegionEdits(f"region-{number}", record, 0) for number in range(100)])
    python_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert memory.num_edits == 10_000_000
    # the bitmaps are outside of Python's memory: twice, as all and by age
    assert python_bytes + 2 * 100 * len(record) < 32 << 20


class SlowMemory:
    """All events as a set; the same promises, the plainest way."""

    def __init__(self) -> None:
        self.events: set[Key] = set()
        self.highest: dict[str, int] = {}

    def split(self, keys: list[Key]) -> list[tuple[bool, bool]]:
        """(new, late) of each event"""
        answers, seen = [], set(self.events)
        for region, at, row in keys:
            new = (region, at, row) not in seen
            seen.add((region, at, row))
            answers.append((new, new and at < self.highest.get(region, -1)))
        return answers

    def deliver(self, keys: Iterable[Key]) -> None:
        for region, at, row in keys:
            self.events.add((region, at, row))
            self.highest[region] = max(at, self.highest.get(region, -1))


# An edit always has the same rows, and is whole in the batch that brings it.
EDITS = {
    (region, at): [b"%s%d" % (region.encode(), row) for row in range(1 + at % 3)]
    for region in "ab"
    for at in range(12)
}


@settings(max_examples=80)
@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from(sorted(EDITS)), max_size=8), st.sets(st.integers(0, 20))),
        max_size=12,
    )
)
def test_it_says_what_a_plain_set_says(calls: list[tuple[list[tuple[str, int]], set[int]]]) -> None:
    memory, slow = DeliveredEdits(), SlowMemory()
    for edits, failing in calls:
        events = [Event(region, at, row) for region, at in edits for row in EDITS[region, at]]
        batch = batch_of(events)
        keys = keys_of(batch)
        split = memory.split(batch)
        assert list(zip(split.new.tolist(), split.late.tolist(), strict=True)) == slow.split(keys)
        done = split.new & np.array([place not in failing for place in range(len(keys))], bool)
        memory.remember(memory.edits_of(batch, split, done))
        slow.deliver(key for key, is_done in zip(keys, done.tolist(), strict=True) if is_done)
