"""Days of history are merged to months under the real scheduler, and answer as before."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.support.airflow_stack import AirflowStack
from tests.support.cubes.day_stream import DayStream

from .conftest import BUILD, BUILT_S

pytestmark = pytest.mark.integration

DAG_ID = "rtolap_merge_segments"
JANUARY = (29, 30, 31)  # READY, and merged when February has begun
FEBRUARY = (32, 33)  # one READY, one with the receiver


@pytest.fixture(scope="module")
def stream(airflow: AirflowStack, streams: Callable[[str], DayStream]) -> DayStream:
    airflow.unpause(BUILD)
    made = streams("merges")
    made.define(merged_to=("month",), merged_after=timedelta(0))
    made.send(*JANUARY, *FEBRUARY)

    def ready() -> bool | None:
        states = {day: info.state for day, info in made.segments().items()}
        return True if all(states.get(day) == "READY" for day in (*JANUARY, 32)) else None

    airflow.until("history of the stream", ready, BUILT_S)
    return made


def levels(stream: DayStream) -> dict[int, list[str]]:
    """Return by day the levels of the sets that its record names."""
    return {day: list(info.merged) for day, info in stream.segments().items()}


def test_a_run_merges_a_month_though_spark_is_killed_and_the_task_cleared(
    airflow: AirflowStack, stream: DayStream
) -> None:
    before = airflow.until("whole answer", stream.answer)
    assert before == stream.recount()
    assert set(map(tuple, levels(stream).values())) == {()}
    key = f"merge.{stream.name}"
    airflow.trigger(DAG_ID)
    airflow.unpause(DAG_ID)  # a run of its schedule may come first: one of both merges
    first = airflow.until_running(key)
    assert first.pid is not None

    def deferred() -> dict[str, Any] | None:
        found = [task for task in airflow.tasks(DAG_ID, task_id="merge") if task["state"] == "deferred"]
        return found[0] if found else None

    task = airflow.until("task that waits for Spark", deferred)
    # Executed again, it waits for the process that is there.
    airflow.clear(DAG_ID, task["dag_run_id"], ("merge", task["map_index"]))
    os.kill(first.pid, signal.SIGKILL)
    for run in airflow.runs(DAG_ID):
        airflow.until_run(DAG_ID, run["dag_run_id"])
    assert levels(stream) == {**{day: ["month"] for day in JANUARY}, 32: []}
    assert airflow.until("answer after the merge", stream.answer) == before


def test_a_second_run_changes_nothing_and_a_day_that_is_built_again_leaves_its_set_for_another(
    airflow: AirflowStack, stream: DayStream
) -> None:
    expected, merged = stream.recount(), levels(stream)
    airflow.run_dag(DAG_ID)
    assert levels(stream) == merged
    queued = airflow.command("rtolap", "segments", "requeue", stream.name, stream.segment(30))
    assert queued.returncode == 0, queued.stdout + queued.stderr

    def rebuilt() -> bool | None:
        info = stream.segments()[30]
        return True if (info.state, info.version) == ("READY", 2) else None

    airflow.until("second version of a day", rebuilt, BUILT_S)
    assert levels(stream)[30] == []
    assert airflow.until("answer beside the set that is broken", stream.answer) == expected
    airflow.run_dag(DAG_ID)
    assert levels(stream) == merged
    assert airflow.until("answer of the second set", stream.answer) == expected
