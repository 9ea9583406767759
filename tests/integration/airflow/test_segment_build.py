"""From Kafka to READY, by the shipped DAGs: a receiver, the queue's event, real Spark builds."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest
from rtolap.airflow.outlets.datasets import history_folder
from rtolap.airflow.ready_assets import ready_asset
from rtolap.cubes.format.history import read_manifest
from rtolap.object_store.store import open_store

pytestmark = pytest.mark.integration

BUILD = "rtolap_segment_build"
REPORT = "it_ready_report"


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


def test_dags_that_wait_for_ready_segments_are_told_each_version(airflow: Any, stream: Any) -> None:
    airflow.unpause(REPORT)
    stream.send(1, 2)

    def persisted() -> bool | None:
        info = stream.segments().get(1)
        return True if info is not None and info.state == "REMOTE_PERSISTED" else None

    airflow.until("REMOTE_PERSISTED segment", persisted)
    airflow.until_run(BUILD, airflow.trigger(BUILD))
    expected = {
        "cube": stream.name,
        "segment": stream.segment(1),
        "version": 1,
        "events": stream.segments()[1].events,
        "start": stream.start(1),
        "end": stream.start(2),
    }

    def told() -> bool | None:
        ended = [task for task in airflow.tasks(REPORT) if task["state"] == "success"]
        return any(expected in airflow.result(task) for task in ended) or None

    airflow.until("report of the version", told)
    events = airflow.asset_events(ready_asset(stream.name).name)
    assert [event["extra"] for event in events] == [expected]
    assert {event["source_dag_id"] for event in events} == {BUILD}
    assert_lineage(airflow, stream)


def assert_lineage(airflow: Any, stream: Any) -> None:
    """Check what OpenLineage's provider has sent of the build, by the transport that Airflow is given."""

    def sent() -> Any:
        outputs = [event for event in airflow.lineage(f"{BUILD}.build") if event["eventType"] == "COMPLETE"]
        return next((event for event in outputs if stream.name in json.dumps(event["outputs"])), None)

    event = airflow.until("event of OpenLineage", sent)
    ports, store = airflow.around.ports, airflow.around.layout.store
    (read,), (written,) = event["inputs"], event["outputs"]
    assert (read["namespace"], read["name"]) == (f"kafka://127.0.0.1:{ports['kafka']}", stream.name)
    made = history_folder(stream.segments()[1].location)
    assert (written["namespace"], written["name"]) == ("file", f"{store}/{made}")
    facets = written["facets"]
    assert facets["version"]["datasetVersion"] == f"{stream.segment(1)}/v1"
    (also,) = facets["symlinks"]["identifiers"]
    at_query = f"mysql://127.0.0.1:{ports['query-mysql']}"
    assert (also["namespace"], also["name"]) == (at_query, f"rtolap.{stream.name}")


def test_a_build_that_failed_for_a_damaged_part_is_made_when_its_receivers_have_uploaded_it_again(
    airflow: Any, stream: Any
) -> None:
    """Nobody mends the file: it is uploaded again, and the retry, or the next run, builds once."""
    stream.send(1, 2)

    def persisted() -> Any:
        info = stream.segments().get(1)
        return info if info is not None and info.state == "REMOTE_PERSISTED" else None

    part = airflow.until("REMOTE_PERSISTED segment", persisted).parts[0]
    (staged, *_) = sorted((airflow.around.layout.store / part.path).glob("*.parquet"))
    whole = staged.read_bytes()
    staged.write_bytes(whole[:-100] + bytes(100))
    before = {run["dag_run_id"] for run in airflow.runs(BUILD)}
    airflow.trigger(BUILD)

    def lost() -> Any:
        return next((line for line in stream.segments()[1].state_history if line.event == "PARTS_LOST"), None)

    assert part.path in airflow.until("the damage is found", lost, 180.0).note
    runs = {run["dag_run_id"] for run in airflow.runs(BUILD)} - before  # a scheduled one may be the first
    for run_id in runs:
        airflow.until_run(BUILD, run_id)
    tasks = [task for run_id in runs for task in airflow.tasks(BUILD, run_id, "build")]
    assert [task["state"] for task in tasks if task["try_number"] > 1] == ["success"]
    airflow.until("the part is there again", lambda: stream.segments()[1].state != "IMMUTABLE" or None, 60.0)
    if stream.segments()[1].state == "REMOTE_PERSISTED":  # the retry came before the part
        airflow.until_run(BUILD, airflow.trigger(BUILD))
    airflow.until("it is built", lambda: stream.segments()[1].state == "READY" or None, 180.0)
    segment = stream.segments()[1]
    assert (segment.state, segment.version, segment.events) == ("READY", 1, 100)
    assert [line.event for line in segment.state_history].count("PROMOTE") == 1
    assert stream.answer() == stream.recount()


def test_a_version_that_lost_its_base_cuboid_is_read_again_from_kafka(airflow: Any, stream: Any) -> None:
    stream.send(1, 2)

    def is_now(state: str) -> Any:
        info = stream.segments().get(1)
        return info if info is not None and info.state == state else None

    def built() -> Any:
        run_id = airflow.trigger(BUILD)
        info = airflow.until("it is built", lambda: is_now("READY"), 300.0)
        airflow.until_run(BUILD, run_id)
        return info

    airflow.until("REMOTE_PERSISTED segment", lambda: is_now("REMOTE_PERSISTED"))
    before = built()
    files = airflow.around.layout.store
    base = read_manifest(open_store(files.as_uri()), before.location).cuboids[0]
    shutil.rmtree(files / before.location / base.name)
    asked = airflow.coordinator.requeue(stream.name, stream.segment(1))
    assert (asked.state, asked.base_lost, asked.lost) == ("IMMUTABLE", True, ())
    (part,) = airflow.until("its part, read again", lambda: is_now("REMOTE_PERSISTED")).parts
    assert part.events == before.events
    after = built()
    assert after.covered
    assert (after.version, after.events, after.covered, after.base_lost) == (
        before.version + 1,
        before.events,
        before.covered,
        False,
    )
    assert airflow.until("whole answer", stream.answer) == stream.recount()
