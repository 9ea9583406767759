"""`airflow backfill create` queues a range of days, and what is rebuilt answers the same."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.integration


def test_exactly_the_ready_segments_of_the_range_are_queued(backfill: Any) -> None:
    assert backfill.queued[3] == backfill.queued[4] == "REMOTE_PERSISTED"
    others = {state for day, state in backfill.queued.items() if day not in (3, 4)}
    assert others <= {"READY", "PURGED"}


def test_a_run_ends_when_its_segments_are_ready_and_names_them(backfill: Any) -> None:
    assert backfill.waiting == ["running", "running"]
    assert {backfill.built[day] for day in (3, 4)} == {"READY"}
    days = {day: info.segment for day, info in backfill.history.stream.segments().items()}
    told = sorted(name for one in backfill.told for name in one["ready"])
    assert told == sorted([days[3], days[4]])


def test_a_clear_and_a_second_backfill_of_the_range_change_nothing(backfill: Any) -> None:
    assert backfill.cleared == backfill.queued
    assert set(backfill.again.values()) <= {"READY", "PURGED"}
    assert backfill.runs == 2  # one a day
    for day in (3, 4):
        state_history = [line.event for line in backfill.history.stream.segments()[day].state_history]
        assert state_history.count("REQUEUE") == 1


def test_the_days_are_rebuilt_with_the_same_events_and_answers(airflow: Any, backfill: Any) -> None:
    stream = backfill.history.stream
    segments = stream.segments()
    assert {day: info.version for day, info in segments.items()} == {1: 1, 2: 1, 3: 2, 4: 2, 5: 1, 6: 1}
    for day in (3, 4):
        info = segments[day]
        assert (info.state, info.events) == ("READY", 100)
        assert info.covered
        assert info.covered == backfill.history.ready[day].covered
    gone = frozenset(day for day, info in segments.items() if info.state == "PURGED")
    assert airflow.until("whole answer", stream.answer) == stream.recount(without=gone)
