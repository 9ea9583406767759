"""Edits of regions that split and merge are late by the rows of their successors, and by no others."""

from __future__ import annotations

import tracemalloc
from collections import defaultdict
from collections.abc import Iterable
from random import Random

import pytest
from rtolap.sep.delivery.delivered_edits import DeliveredEdits
from rtolap.sep.delivery.row_ranges import CLOCKS_APART_MS, ROW_BYTES_MAX, DeliveredRegion, RowRanges

from tests.support.seeds import so_many
from tests.support.sep.batches import Event, batch_of
from tests.support.sep.region_lives import written_events


def late_of(memory: DeliveredEdits, events: Iterable[Event]) -> list[bool]:
    """Deliver the events as one group, and return which were late."""
    batch = batch_of(events)
    split = memory.split(batch)
    memory.remember(memory.edits_of(batch, split, split.new))
    late: list[bool] = split.late.tolist()
    return late


class Plain:
    """Every delivered event is kept, and looked through each time."""

    def __init__(self) -> None:
        self._by_region: dict[tuple[str, str], list[Event]] = defaultdict(list)
        self._by_row: dict[tuple[str, bytes], int] = {}

    def late(self, event: Event) -> bool:
        for (table, region), delivered in self._by_region.items():
            rows = [each.row for each in delivered]
            has_row = region == event.region or (table == event.table and min(rows) <= event.row <= max(rows))
            if has_row and max(each.sequence_id for each in delivered) > event.sequence_id:
                return True
        return False

    def newest_of_row(self, event: Event) -> int:
        return self._by_row.get((event.table, event.row), -1)

    def deliver(self, events: Iterable[Event]) -> None:
        for event in events:
            self._by_region[event.table, event.region].append(event)
            self._by_row[event.table, event.row] = max(event.sequence_id, self.newest_of_row(event))


@pytest.mark.seeded
def test_late_events_of_any_life_are_told_as_by_looking_through_all_that_was_delivered() -> None:
    told = 0
    for seed in range(so_many(20, 40)):
        random = Random(seed)
        events = [
            event
            for table in ("orders", "visits")
            for event in written_events(random, 60, table=table, first_id=random.choice((1, 5000)))
        ]
        # servers ship side by side, and some of them much later
        events.sort(key=lambda event: event.write_time_ms + random.choice((0, 0, 5, 40)))
        memory, plain = DeliveredEdits(), Plain()
        while events:
            group, events = events[: (size := random.randint(1, 9))], events[size:]
            if random.random() < 0.1:  # another process has read the journal
                again = DeliveredEdits()
                again.remember(list(memory.records()))
                memory = again
            late = late_of(memory, group)
            assert late == [plain.late(event) for event in group], f"seed {seed}"
            for event, is_late in zip(group, late, strict=True):
                assert is_late or event.sequence_id > plain.newest_of_row(event), f"seed {seed}"
                told += is_late and event.region not in {each.region for each in group if each != event}
            plain.deliver(group)
    assert told > 100


def test_edits_of_a_parent_are_late_where_a_daughter_has_delivered_around_their_row() -> None:
    memory = DeliveredEdits()
    assert late_of(memory, [Event("parent", 5, b"k")]) == [False]
    assert late_of(memory, [Event("left", 21, b"a"), Event("left", 22, b"d")]) == [False, False]
    assert late_of(
        memory, [Event("parent", 7, b"b"), Event("parent", 8, b"e"), Event("parent", 9, b"z")]
    ) == [
        True,
        False,  # no daughter has delivered so far
        False,
    ]
    assert late_of(memory, [Event("right", 21, b"n"), Event("right", 22, b"z")]) == [False, False]
    assert late_of(memory, [Event("parent", 10, b"o")]) == [True]


def test_edits_of_both_parents_of_a_merge_are_late() -> None:
    memory = DeliveredEdits()
    assert late_of(memory, [Event("left", 50, b"b"), Event("right", 4, b"x")]) == [False, False]
    assert late_of(memory, [Event("merged", 61, b"a"), Event("merged", 62, b"z")]) == [False, False]
    assert late_of(memory, [Event("left", 51, b"c"), Event("right", 5, b"x")]) == [True, True]


def test_neighbours_with_higher_ids_and_other_tables_make_nothing_late() -> None:
    memory = DeliveredEdits()
    assert late_of(memory, [Event("a", 900, b"a"), Event("a", 901, b"f")]) == [False, False]
    assert (
        late_of(memory, [Event("b", 1, b"g"), Event("b", 2, b"z"), Event("c", 1, b"b", table="u")])
        == [False] * 3
    )


def test_a_table_that_is_made_again_with_small_ids_is_not_late_for_ever() -> None:
    memory = DeliveredEdits()
    old = [Event("old", at, b"%d" % (at % 9), 1000) for at in range(500, 520)]
    assert late_of(memory, old) == [False] * 20
    soon = [Event("new", at, b"5", 1000 + CLOCKS_APART_MS) for at in (1, 2)]
    assert late_of(memory, soon) == [True, True]  # by its server's clock it may be older
    after = [Event("new", at, b"5", 1001 + CLOCKS_APART_MS) for at in (3, 5)]
    assert late_of(memory, after) == [False, False]
    # what it splits into is compared with it, and no more with the old one
    daughter = [Event("daughter", at, b"%d" % (at - 3), 1002 + CLOCKS_APART_MS) for at in (8, 9)]
    assert late_of(memory, daughter) == [False, False]
    assert late_of(memory, [Event("new", 4, b"6", 1000 + CLOCKS_APART_MS)]) == [True]


def test_a_region_that_is_forgotten_makes_nothing_late() -> None:
    memory = DeliveredEdits(regions_max=2)
    late_of(memory, [Event("daughter", 20, b"a"), Event("daughter", 21, b"z")])
    late_of(memory, [Event("x", 1, b"a", table="u"), Event("y", 1, b"b", table="u")])
    assert late_of(memory, [Event("parent", 3, b"k")]) == [False]


@pytest.mark.parametrize("shared", [ROW_BYTES_MAX - 1, ROW_BYTES_MAX])
def test_long_rows_are_kept_in_part_and_those_that_are_alike_so_far_are_taken_for_one(shared: int) -> None:
    memory = DeliveredEdits()
    prefix = b"p" * shared
    late_of(memory, [Event("a", 900, prefix + b"a" * 5000)])
    assert late_of(memory, [Event("b", 1, prefix + b"b" * 5000)]) == [shared == ROW_BYTES_MAX]
    [record] = [each for each in memory.records() if each.region == "a"]
    assert len(record.first_row) == len(record.last_row) == ROW_BYTES_MAX


def test_there_are_at_most_two_ranges_for_each_region() -> None:
    random, ranges = Random(1), RowRanges()
    regions = [DeliveredRegion("t", highest=random.randrange(1000)) for _ in range(200)]
    for _ in range(5000):
        first, last = sorted(b"%04d" % random.randrange(3000) for _ in range(2))
        ranges.deliver(random.choice(regions), first, last)
        assert len(ranges) <= 2 * len(regions) + 1
    for region in regions:
        ranges.forget(region)
    assert len(ranges) == 0


def test_a_region_takes_some_hundred_bytes() -> None:
    ranges, regions = RowRanges(), 10_000
    tracemalloc.start()
    for number in range(regions):
        region = DeliveredRegion("t", highest=number)
        ranges.deliver(region, b"user-%08d-000" % number, b"user-%08d-999" % number)
    used_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(ranges) == regions
    assert used_bytes < 500 * regions
