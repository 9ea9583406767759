"""Processes under the real scheduler, triggerer, API server and DAG processor.

What is killed and cleared is a real receiver of a cube on a real Kafka: one process is left, and its answers
are a recount of everything that was sent. Commands that sleep stand in where only the process counts.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from rtolap.base.pids import pid_lives
from rtolap.protocols.agent.messages import ProcessStatus

from tests.support.airflow_stack import AirflowStack
from tests.support.cubes.day_stream import DayStream

pytestmark = pytest.mark.integration

RECEIVERS = "rtolap_receivers"
RECEIVER = "receiver.r0"
ANSWER_S = 120.0


def deferred_receiver(airflow: AirflowStack) -> dict[str, Any]:
    """Its task, once a trigger waits for the process."""

    def look() -> dict[str, Any] | None:
        tasks = airflow.tasks(RECEIVERS, task_id="receiver")
        found = [task for task in tasks if task["map_index"] == 0]  # the first that is declared
        return found[-1] if found and found[-1]["state"] == "deferred" else None

    return airflow.until("deferred receiver", look)


def answers_exactly(airflow: AirflowStack, stream: DayStream) -> bool:
    return airflow.until("answer that holds everything", stream.answer, ANSWER_S) == stream.recount()


def killed_and_restarted(airflow: AirflowStack) -> ProcessStatus:
    """The receiver by SIGKILL, and by its agent."""
    before = airflow.agent.get(RECEIVER)
    assert before.pid is not None
    os.kill(before.pid, signal.SIGKILL)

    def look() -> ProcessStatus | None:
        found = airflow.agent.get(RECEIVER)
        return found if found.state == "RUNNING" and found.pid not in (None, before.pid) else None

    return airflow.until("restarted receiver", look)


def test_a_receiver_survives_a_killed_triggerer_and_answers_exactly_meanwhile(
    airflow: AirflowStack, stream: DayStream
) -> None:
    task = deferred_receiver(airflow)
    before = airflow.until_process(RECEIVER, "RUNNING")
    stream.send(1)
    assert answers_exactly(airflow, stream)
    triggerer = airflow.components["airflow-triggerer"]
    triggerer.kill()
    stream.send(1)
    assert answers_exactly(airflow, stream)
    triggerer.start()
    airflow.until_renewed(RECEIVER)
    after = airflow.agent.get(RECEIVER)
    assert (after.pid, after.generation, after.state) == (before.pid, before.generation, "RUNNING")
    assert airflow.started_for(RECEIVER) == [before.pid]
    assert deferred_receiver(airflow)["id"] == task["id"]


def test_a_receiver_that_is_killed_beside_the_triggerer_is_one_process_afterwards_and_answers_exactly(
    airflow: AirflowStack, stream: DayStream
) -> None:
    deferred_receiver(airflow)
    generation = airflow.until_process(RECEIVER, "RUNNING").generation
    stream.send(1)
    assert answers_exactly(airflow, stream)
    triggerer = airflow.components["airflow-triggerer"]
    triggerer.kill()
    stream.send(1)
    after = killed_and_restarted(airflow)
    assert after.generation == generation
    triggerer.start()
    stream.send(1)
    assert answers_exactly(airflow, stream)
    airflow.until_renewed(RECEIVER)
    assert airflow.started_for(RECEIVER) == [after.pid]


def test_clearing_a_receiver_leaves_one_process_that_answers_exactly(
    airflow: AirflowStack, stream: DayStream
) -> None:
    task = deferred_receiver(airflow)
    old = airflow.until_process(RECEIVER, "RUNNING")
    assert old.pid is not None
    stream.send(1)
    assert answers_exactly(airflow, stream)
    airflow.clear(RECEIVERS, task["dag_run_id"], ("receiver", task["map_index"]))
    stream.send(1)
    new = airflow.until_running(RECEIVER, old.generation + 1)
    assert not pid_lives(old.pid)
    assert airflow.started_for(RECEIVER) == [new.pid]
    stream.send(1)
    assert answers_exactly(airflow, stream)
    deferred_receiver(airflow)
    airflow.until_renewed(RECEIVER)
    assert airflow.started_for(RECEIVER) == [new.pid]  # the first one's stop did not hit the second


def test_the_task_leads_to_its_processs_log(airflow: AirflowStack) -> None:
    run = airflow.trigger("it_linked")
    airflow.until_running("it_linked", 1)
    airflow.until_task("it_linked", run, "deferred")
    links = airflow.api.get(f"/api/v2/dags/it_linked/dagRuns/{run}/taskInstances/process/links")
    url = links.raise_for_status().json()["extra_links"]["Process log"]

    def log() -> str | None:
        answer = airflow.api.get(url)
        assert answer.status_code == 200, answer.text
        return answer.text if "sleeping for 3600 s" in answer.text else None

    airflow.until("line in the log", log)


def test_marking_a_task_failed_stops_its_process(airflow: AirflowStack) -> None:
    run = airflow.trigger("it_marked")
    process = airflow.until_running("it_marked", 1)
    airflow.until_task("it_marked", run, "deferred")
    airflow.until_renewed("it_marked")
    airflow.mark("it_marked", run, "failed")
    assert airflow.until_process("it_marked", "STOPPED").reason == "stopped by request"
    assert not pid_lives(process.pid)
    assert airflow.task("it_marked", run)["state"] == "failed"


def test_a_failed_one_shot_is_retried(airflow: AirflowStack) -> None:
    run = airflow.trigger("it_retried")
    task = airflow.until_task("it_retried", run, "success", "failed")
    assert (task["state"], task["try_number"]) == ("success", 2)
    assert airflow.agent.generation("it_retried") == 2


def test_a_cleared_one_shot_is_adopted_and_not_run_twice(airflow: AirflowStack) -> None:
    run = airflow.trigger("it_adopted")
    process = airflow.until_running("it_adopted", 1)
    airflow.until_task("it_adopted", run, "deferred")
    airflow.clear("it_adopted", run)
    task = airflow.until_task("it_adopted", run, "success", "failed")
    assert (task["state"], task["try_number"]) == ("success", 2)
    assert airflow.agent.generation("it_adopted") == 1
    assert not pid_lives(process.pid)
