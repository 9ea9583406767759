"""Processes under the real scheduler, triggerer, API server and DAG processor."""

from __future__ import annotations

import time
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.integration


def lease_end_s(airflow: Any, key: str) -> float:
    """When the lease would expire; it moves on only when somebody renews it."""
    return time.monotonic() + float(airflow.agent.get(key).lease_left_s)


def wait_for_renewal(airflow: Any, key: str) -> None:
    """A trigger in the triggerer looks after the process; `deferred` alone says only that one shall."""
    before_s = lease_end_s(airflow, key)
    airflow.until(
        f"renewal of {key}", lambda: True if lease_end_s(airflow, key) > before_s + 0.3 else None, 90.0
    )


def test_a_process_survives_a_killed_triggerer(airflow: Any) -> None:
    run = airflow.trigger("it_survivor")
    process = airflow.until_running("it_survivor", 1)
    airflow.until_task("it_survivor", run, "deferred")
    triggerer = airflow.components["airflow-triggerer"]
    triggerer.kill()
    triggerer.start()
    wait_for_renewal(airflow, "it_survivor")
    after = airflow.agent.get("it_survivor")
    assert (after.pid, after.generation, after.state) == (process.pid, 1, "RUNNING")
    assert airflow.task("it_survivor", run)["state"] == "deferred"


def test_the_task_leads_to_its_processs_log(airflow: Any) -> None:
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


def test_clear_stops_the_old_process_before_the_new_one_starts(airflow: Any) -> None:
    run = airflow.trigger("it_cleared")
    old = airflow.until_running("it_cleared", 1)
    airflow.until_task("it_cleared", run, "deferred")
    airflow.clear("it_cleared", run)
    new = airflow.until_running("it_cleared", 2)
    assert not psutil.pid_exists(old.pid)
    assert new.pid != old.pid
    airflow.until_task("it_cleared", run, "deferred")
    assert airflow.agent.get("it_cleared").state == "RUNNING"  # the first one's stop did not hit the second


def test_marking_a_task_failed_stops_its_process(airflow: Any) -> None:
    run = airflow.trigger("it_marked")
    process = airflow.until_running("it_marked", 1)
    airflow.until_task("it_marked", run, "deferred")
    wait_for_renewal(airflow, "it_marked")
    airflow.mark("it_marked", run, "failed")
    assert airflow.until_process("it_marked", "STOPPED").reason == "stopped by request"
    assert not psutil.pid_exists(process.pid)
    assert airflow.task("it_marked", run)["state"] == "failed"


def test_a_failed_one_shot_is_retried(airflow: Any) -> None:
    run = airflow.trigger("it_retried")
    task = airflow.until_task("it_retried", run, "success", "failed")
    assert (task["state"], task["try_number"]) == ("success", 2)
    assert airflow.agent.generation("it_retried") == 2


def test_a_cleared_one_shot_is_adopted_and_not_run_twice(airflow: Any) -> None:
    run = airflow.trigger("it_adopted")
    process = airflow.until_running("it_adopted", 1)
    airflow.until_task("it_adopted", run, "deferred")
    airflow.clear("it_adopted", run)
    task = airflow.until_task("it_adopted", run, "success", "failed")
    assert (task["state"], task["try_number"]) == ("success", 2)
    assert airflow.agent.generation("it_adopted") == 1
    assert not psutil.pid_exists(process.pid)
