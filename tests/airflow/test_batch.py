"""Which segments go into one spark-submit, and what its log says about them."""

from __future__ import annotations

from typing import Any

from rtolap.airflow.operators import build_batch as batch
from rtolap.airflow.operators.build_batch import Build, BuildOutcome
from rtolap.protocols.agent.messages import ProcessStatus
from rtolap.protocols.coordinator.messages import QueueEntry, SegmentInfo


def entry(segment: str, cube: str = "c", waits_for: str | None = None) -> QueueEntry:
    fields: dict[str, Any] = {"start_ms": int(segment), "end_ms": 9, "version": 1, "parts": 1, "events": 1}
    return QueueEntry(cube=cube, segment=segment, waits_for=waits_for, **fields)


def test_a_batch_takes_the_oldest_segments_of_its_cube() -> None:
    entries = [
        entry("1"),
        entry("1", cube="d"),
        entry("2", waits_for="1"),
        entry("3", waits_for="2"),
        entry("4"),
    ]
    assert [chosen.segment for chosen in batch.choose(entries, "c", 3, [])] == ["1", "2", "3"]


def test_a_batch_ends_at_a_segment_that_waits_for_one_outside() -> None:
    entries = [entry("2"), entry("4", waits_for="3"), entry("5", waits_for="4")]
    assert [chosen.segment for chosen in batch.choose(entries, "c", 8, [])] == ["2"]
    assert batch.choose(entries[1:], "c", 8, []) == []


def test_a_closed_segment_without_history_holds_back_later_ones() -> None:
    entries = [entry("1"), entry("3", waits_for="1"), entry("4", waits_for="1")]
    between = SegmentInfo(cube="c", segment="2", start_ms=2, end_ms=3, state="IMMUTABLE", version=0)
    assert [chosen.segment for chosen in batch.choose(entries, "c", 8, [between])] == ["1"]
    late_delta = between.model_copy(update={"version": 1})
    assert len(batch.choose(entries, "c", 8, [late_delta])) == 3


def test_a_segment_that_is_held_holds_back_later_ones() -> None:
    entries = [entry("1"), entry("2", waits_for="1"), entry("3", waits_for="2")]
    assert [chosen.segment for chosen in batch.choose(entries, "c", 8, [], {entries[1]})] == ["1"]
    assert batch.choose(entries, "c", 8, [], {entries[0]}) == []


def test_labels_bring_the_builds_back() -> None:
    builds = [Build("c", "s1", 1, "b1"), Build("c", "s2", 3, "b2")]
    status = ProcessStatus(key="build.c", generation=1, state="RUNNING", labels=batch.labels(builds))
    assert batch.builds_of(status) == builds
    assert batch.builds_of(ProcessStatus(key="x", generation=1, state="RUNNING")) == []


def test_the_log_says_what_was_built() -> None:
    log = (
        'b1"}\nWARN something\n'
        'rtolap-progress: {"event":"verified","build_id":"b1"}\n'
        'rtolap-progress: {"event":"built","build_id":"b1","rows":3}\n'
        'rtolap-progress: {"event":"failed","build_id":"b2","error":"no disk"}\n'
        'rtolap-progress: {"event":"verified","build_id":"b3"}\n'
        'rtolap-progress: {"event":"bui'
    )
    assert batch.outcomes(log) == {"b1": BuildOutcome(built=True), "b2": BuildOutcome(error="no disk")}
