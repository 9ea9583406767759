"""What a task asks in Airflow's own form, and the answer of a person who presses a button there."""

from __future__ import annotations

from typing import Any

import httpx

QUESTION_S = 300.0


def question(airflow: Any, dag_id: str, run_id: str, task_id: str) -> dict[str, Any]:
    """Return what the task asks, once it does."""
    url = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/hitlDetails"

    def look() -> dict[str, Any] | None:
        failed = [task for task in airflow.tasks(dag_id, run_id) if task["state"] == "failed"]
        assert not failed, airflow.log(failed[0])[-3000:]
        answer = airflow.api.get(url, params={"response_received": False}).raise_for_status().json()
        asked = [one for one in answer["hitl_details"] if one["task_instance"]["task_id"] == task_id]
        return asked[0] if asked else None

    found: dict[str, Any] = airflow.until(f"question of {task_id}", look, QUESTION_S)
    return found


def press(airflow: Any, dag_id: str, run_id: str, task_id: str, option: str = "Approve") -> None:
    """Do what Airflow's form does when ada presses a button."""
    url = f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/-1/hitlDetails"
    with airflow.signed_in("ada") as client:
        answer: httpx.Response = client.patch(url, json={"chosen_options": [option], "params_input": {}})
    answer.raise_for_status()
