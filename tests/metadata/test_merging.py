"""Units of reads: each version in one, whatever sets there are; and records of before there were sets."""

from __future__ import annotations

import random

import msgspec
import pytest
from rtolap.base.errors import Corrupted
from rtolap.metadata import codec
from rtolap.metadata.merging.commit import join_set
from rtolap.metadata.merging.units import history_units, whole_sets
from rtolap.metadata.records import MergedSet, SegmentRecord
from rtolap.metadata.segment_format.pages import decode_page, encode_page, paged
from rtolap.model.merging.intervals import DAY_MS, interval_of
from rtolap.model.segment import SegmentRange, SegmentState

from tests.support.seeds import so_many

HOUR_MS = 3_600_000


def ready(hour: int, version: int = 1, *merged: MergedSet) -> SegmentRecord:
    return SegmentRecord(
        cube="c",
        start_ms=hour * HOUR_MS,
        end_ms=(hour + 1) * HOUR_MS,
        state=SegmentState.READY,
        version=version,
        location=f"history/c/{hour}/v{version}",
        merged=merged,
    )


@pytest.mark.seeded
@pytest.mark.parametrize("seed", range(so_many(300)))
def test_every_version_is_in_one_unit_and_every_set_is_whole(seed: int) -> None:
    """Sets are made as merges make them, of what stands; then members are replaced, purged or not wanted."""
    rng = random.Random(seed)
    records = {hour: ready(hour) for hour in range(12) if rng.random() < 0.9}
    held: dict[str, set[tuple[int, int]]] = {}
    for number in range(rng.randrange(8)):
        if records and rng.random() < 0.5:
            hour = rng.choice(sorted(records))
            records[hour] = ready(hour, records[hour].version + 1)
        if rng.random() < 0.3:
            records.setdefault(rng.randrange(12), ready(12 + number))
            records = {hour: each for hour, each in records.items() if each.start_ms == hour * HOUR_MS}
        level, length = rng.choice((("day", 4), ("month", 12)))
        first = rng.randrange(0, 12, length)
        members = [hour for hour in sorted(records) if first <= hour < first + length]
        if len(members) > 1:
            merged = MergedSet(level, f"merged/{number}", len(members))
            held[merged.location] = {(hour, records[hour].version) for hour in members}
            for hour in members:
                records[hour] = join_set(records[hour], merged, now_ms=1)
    wanted = [each for _, each in sorted(records.items()) if rng.random() < rng.choice((0.5, 1.0))]
    units = history_units(wanted)
    in_units = [(each.start_ms, each.version) for unit in units for each in unit.records]
    assert sorted(in_units) == sorted((each.start_ms, each.version) for each in wanted)
    for unit in units:
        if unit.level:
            found = {(each.start_ms // HOUR_MS, each.version) for each in unit.records}
            assert found == held[unit.location], "a set is read for what it holds, and nothing else"
        else:
            assert unit.is_base_only == bool(unit.records[0].merged)
    assert {unit.location for unit in units if unit.level} <= whole_sets(wanted).keys()


def test_a_month_answers_before_its_days_and_a_day_where_it_cannot() -> None:
    month = MergedSet("month", "m", 4)
    days = [MergedSet("day", f"d{day}", 2) for day in range(2)]
    records = [ready(hour, 1, days[hour // 2], month) for hour in range(4)]
    assert [unit.location for unit in history_units(records)] == ["m"]
    assert [unit.location for unit in history_units(records[:3])] == ["d0", "history/c/2/v1"]


def test_a_version_without_a_location_is_named() -> None:
    with pytest.raises(Corrupted, match="without a location"):
        history_units([msgspec.structs.replace(ready(1), location=None)])


def test_records_without_sets_are_written_and_read_as_before() -> None:
    record = ready(3)
    assert b"merged" not in codec.encode(record)
    page = encode_page({record.name: paged(record)})
    assert decode_page(page, "p") == {record.name: record}


def test_intervals_are_days_and_months_of_utc() -> None:
    assert interval_of("day", DAY_MS + 5) == SegmentRange(DAY_MS, 2 * DAY_MS)
    assert interval_of("day", -1) == SegmentRange(-DAY_MS, 0)
    february = interval_of("month", 40 * DAY_MS)
    assert february == SegmentRange(31 * DAY_MS, 59 * DAY_MS)
    assert interval_of("month", -1) == SegmentRange(-31 * DAY_MS, 0)
    december = interval_of("month", 340 * DAY_MS)
    assert december == SegmentRange(334 * DAY_MS, 365 * DAY_MS)
