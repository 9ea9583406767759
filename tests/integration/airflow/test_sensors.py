"""Sensors in a run: deferred in the triggerer, fired by what happens, or told why not."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.integration

DAG_ID = "it_sensors"
TASKS = {"any_segment", "day_is_complete", "no_segment", "never_complete", "skipped"}


@pytest.fixture
def run(airflow: Any, stream: Any) -> str:
    """A run whose sensors have all been deferred while nothing had been sent."""
    run_id: str = airflow.trigger(DAG_ID, cube=stream.name, day=stream.start(2))
    seen: set[str] = set()

    def all_deferred() -> bool | None:
        seen.update(task["task_id"] for task in airflow.tasks(DAG_ID, run_id) if task["state"] == "deferred")
        return True if seen == TASKS else None

    airflow.until("deferred sensors", all_deferred)
    return run_id


def test_sensors_fire_when_it_comes_true_and_say_what_they_waited_for_when_not(
    airflow: Any, stream: Any, run: str
) -> None:
    def ended(task_id: str) -> Any:
        return airflow.until_task(DAG_ID, run, "success", "failed", "skipped", task_id=task_id)

    late = ended("never_complete")
    assert (late["state"], late["try_number"]) == ("failed", 1)
    waited = f"waited 6 s without success: the low watermark of {stream.name} is unknown"
    airflow.until_logged(late, waited, "expected 2100-01-01T00:00:00+00:00 or later")

    missing = ended("no_segment")
    assert missing["state"] == "failed"
    airflow.until_logged(missing, f"of {stream.name} is ACTIVE; expected REMOTE_PERSISTED")
    assert ended("skipped")["state"] == "skipped"

    for task_id in ("any_segment", "day_is_complete"):
        assert airflow.task(DAG_ID, run, task_id)["state"] == "deferred"
    stream.send(1)
    stream.send(2)
    assert ended("day_is_complete")["state"] == "success"
    assert ended("any_segment")["state"] == "success"
    assert stream.segments()[1].state == "REMOTE_PERSISTED"
