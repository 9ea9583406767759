"""Which segments a leader closes, and when."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from rtolap.cubes.receiver.closing_rules import (
    ByApplication,
    SegmentClosing,
    StreamClocks,
    Takeover,
    decide,
    low_watermark,
)
from rtolap.metadata.records import SegmentRecord
from rtolap.model.application import CubeWatermark
from rtolap.model.completeness import Completeness
from rtolap.model.cube import Cube, LatePolicy, SegmentPolicy
from rtolap.model.segment import SegmentState

CUBE = Cube(
    name="c",
    table="t",
    dimensions=("d",),
    segment=SegmentPolicy(
        window_ms=100, allowed_lateness_ms=10, sliding_window_ms=200, sliding_window_max_ms=500
    ),
    late=LatePolicy(merge_after_ms=1000),
)


def closed(cube: Cube = CUBE, **changes: Any) -> tuple[SegmentClosing, ...]:
    arguments: dict[str, Any] = {
        "positions": {0: 5, 1: 7},
        "local": {0},
        "records": {},
        "marks": StreamClocks(),
        "low_watermark_ms": None,
        "caught_up": True,
        "now_ms": 0,
    }
    return decide(cube, **{**arguments, **changes})


def record(**changes: Any) -> SegmentRecord:
    return SegmentRecord(cube="c", start_ms=0, end_ms=100, **changes)


def test_the_low_watermark_closes_at_the_end_plus_lateness() -> None:
    assert closed(low_watermark_ms=109) == ()
    (one,) = closed(low_watermark_ms=110)
    assert (one.start_ms, one.vector) == (0, {0: 5, 1: 7})


def test_the_sliding_window_closes_without_a_watermark() -> None:
    assert closed(marks=StreamClocks(249, {0: 50})) == ()
    assert closed(marks=StreamClocks(250, {0: 50}))
    assert not closed(marks=StreamClocks(250, {0: 50}), caught_up=False), "a replay is no silence"


def test_arrivals_hold_the_sliding_window_only_up_to_its_bound() -> None:
    assert not closed(marks=StreamClocks(599, {0: 599}))
    assert closed(marks=StreamClocks(600, {0: 600}))


def test_the_sliding_window_never_closes_before_the_end() -> None:
    assert not closed(marks=StreamClocks(99, {0: -500}))


def test_a_segment_closed_elsewhere_is_closed_here_too_without_local_data() -> None:
    other = record(state=SegmentState.IMMUTABLE, target={2: 9})
    assert not closed(local=set(), records={0: other})
    (one,) = closed(local=set(), records={0: other}, low_watermark_ms=110)
    assert one.vector == {0: 5, 1: 7}


def test_partitions_that_are_closed_keep_their_vector() -> None:
    half = record(state=SegmentState.IMMUTABLE, target={0: 4})
    (one,) = closed(records={0: half}, low_watermark_ms=110)
    assert one.vector == {1: 7}
    assert not closed(
        records={0: record(state=SegmentState.IMMUTABLE, target={0: 4, 1: 4})}, low_watermark_ms=110
    )


def test_a_late_delta_waits_for_company() -> None:
    ready = record(state=SegmentState.READY, version=1, covered={0: 3, 1: 3})
    marks = StreamClocks(late_since={0: 500})
    assert not closed(records={0: ready}, marks=marks, now_ms=1499, low_watermark_ms=999)
    assert closed(records={0: ready}, marks=marks, now_ms=1500)
    assert not closed(records={0: ready}, local=set(), marks=marks, now_ms=1500)


def test_a_late_delta_joins_another_replica_set_at_once() -> None:
    going = record(state=SegmentState.IMMUTABLE, version=1, covered={0: 3, 1: 3, 2: 1}, target={2: 5})
    (one,) = closed(local=set(), records={0: going})
    assert one.vector == {0: 5, 1: 7}


def test_nothing_is_closed_behind_what_history_covers() -> None:
    ahead = record(state=SegmentState.IMMUTABLE, version=1, covered={0: 6, 1: 3}, target={2: 5})
    assert not closed(local=set(), records={0: ahead})


def test_force_closes_first_versions_and_local_late_deltas_only() -> None:
    assert closed(force={0})
    assert closed(force_before_ms=100)
    assert not closed(force_before_ms=99)
    ready = record(state=SegmentState.READY, version=1, covered={0: 3, 1: 3})
    assert closed(records={0: ready}, force={0})
    assert not closed(records={0: ready}, local=set(), force={0}), "an empty round would be built for nothing"
    assert not closed(records={0: ready}, force_before_ms=100)
    assert not closed(records={0: record(state=SegmentState.REMOTE_PERSISTED)}, force={0})


def test_a_replaying_leader_holds_the_published_watermark_back() -> None:
    assert low_watermark(100, {0: (50, False), 1: (200, False)}) == 50
    assert low_watermark(100, {0: (50, True), 1: (200, False)}) == 100
    assert low_watermark(100, {0: (None, False)}) is None
    assert low_watermark(100, {0: (None, True)}) == 100
    assert low_watermark(None, {}) is None


WITH_APPLICATION = msgspec.structs.replace(CUBE, watermark=CubeWatermark("app", "web", "cubes"))
READING = Takeover(1, frozenset({0, 1}))


def window(end_ms: int, **changes: Any) -> Completeness:
    known = {"application": "app", "window_end_ms": end_ms, "closed_by": "watermark", "bound_ppm": end_ms}
    return Completeness(**{**known, **changes})


def by_application(*windows: Completeness, **changes: Any) -> tuple[SegmentClosing, ...]:
    said = ByApplication(windows, changes.pop("takeover", READING), changes.pop("forced", None))
    return closed(WITH_APPLICATION, application=said, **changes)


def test_a_cube_with_an_application_closes_by_the_windows_that_it_lets_close() -> None:
    assert by_application() == ()
    (one,) = by_application(window(100), window(200))
    assert (one.start_ms, one.vector, one.completeness) == (0, {0: 5, 1: 7}, window(100))
    assert one.why == "watermark, application app"


def test_a_window_that_is_listed_no_more_is_bounded_by_the_next_that_is() -> None:
    (one,) = by_application(window(300), window(400))
    assert one.completeness == window(300)


def test_neither_the_simple_rule_nor_silence_closes_a_cube_with_an_application() -> None:
    assert by_application(low_watermark_ms=10_000, marks=StreamClocks(10_000, {0: 50})) == ()


def test_an_approval_is_named_with_who_gave_it() -> None:
    (one,) = by_application(window(100, closed_by="approval", approved_by="erika"))
    assert one.why == "approval of erika, application app"


@pytest.mark.parametrize("takeover", [None, Takeover(1, frozenset({0})), Takeover(1, frozenset({0, 1}), 110)])
def test_who_has_not_read_what_was_reported_before_it_closes_nothing_by_the_application(
    takeover: Takeover | None,
) -> None:
    assert by_application(window(100), takeover=takeover) == ()


def test_a_segment_that_another_replica_set_has_closed_waits_for_the_application_too() -> None:
    elsewhere = record(state=SegmentState.IMMUTABLE, target={2: 9})
    assert by_application(records={0: elsewhere}, local=set()) == ()
    (one,) = by_application(window(100), records={0: elsewhere}, local=set())
    assert one.completeness == window(100)


def test_a_forced_closing_keeps_the_numbers_of_its_command_where_this_reader_has_read_as_far() -> None:
    command = window(200, closed_by="forced")
    read = Takeover(1, frozenset({0, 1}), ends={0: 5, 1: 7})
    (one,) = by_application(force_before_ms=200, forced=command, takeover=read)
    assert one.completeness == command
    (one,) = by_application(force_before_ms=200, forced=command)
    assert one.completeness == window(200, closed_by="forced", bound_ppm=None)
    (one,) = by_application(force={0})
    assert one.completeness == window(100, closed_by="forced", bound_ppm=None)


def test_a_late_delta_is_merged_as_before_and_says_nothing_of_completeness() -> None:
    ready = record(state=SegmentState.READY, version=1, covered={0: 1, 1: 1})
    (one,) = by_application(records={0: ready}, marks=StreamClocks(late_since={0: 0}), now_ms=1000)
    assert one.completeness is None
