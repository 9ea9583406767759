"""From Kafka to READY, by the shipped DAGs: a receiver, the queue's event, real Spark builds."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.integration

BUILD = "rtolap_segment_build"


def test_an_event_starts_a_build_and_clearing_it_does_not_build_twice(airflow: Any, history: Any) -> None:
    stream = history.stream
    assert history.run["run_type"] == "asset_triggered"
    assert (history.task["state"], history.task["try_number"]) == ("success", 2)
    assert history.begun
    built = {day: info.build.build_id for day, info in history.ready.items()}
    assert history.begun.items() <= built.items()  # both executions waited for the same builds
    assert set(built) == {1, 2, 3, 4, 5, 6}
    gone = frozenset(day for day, info in stream.segments().items() if info.state == "PURGED")
    assert airflow.until("whole answer", stream.answer) == stream.recount(without=gone)


def test_a_build_that_failed_is_reported_and_built_once_by_airflows_retry(airflow: Any, stream: Any) -> None:
    """The first attempt finds a damaged staged file; it is mended before the second."""
    stream.send(1, 2)

    def persisted() -> Any:
        info = stream.segments().get(1)
        return info if info is not None and info.state == "REMOTE_PERSISTED" else None

    part = airflow.until("REMOTE_PERSISTED segment", persisted).parts[0]
    (staged, *_) = sorted((airflow.around.layout.store / part.path).glob("*.parquet"))
    whole = staged.read_bytes()
    staged.write_bytes(whole[:-100] + bytes(100))
    run_id = airflow.trigger(BUILD)

    def reported() -> Any:
        build = stream.segments()[1].build
        return build if build is not None and build.error else None

    failed = airflow.until("report of the failure", reported, 180.0)
    assert staged.name in failed.error
    staged.write_bytes(whole)
    airflow.until_run(BUILD, run_id)
    (task,) = [task for task in airflow.tasks(BUILD, run_id, "build") if task["try_number"] > 1]
    assert (task["state"], task["try_number"]) == ("success", 2)
    segment = stream.segments()[1]
    assert (segment.state, segment.version, segment.events) == ("READY", 1, 100)
    assert [line.event for line in segment.story].count("PROMOTE") == 1
    assert segment.build.build_id != failed.build_id
    assert stream.answer() == stream.recount()
