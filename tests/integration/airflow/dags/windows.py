"""Sensors of a window: one that waits for what a test is going to do, and two that wait in vain; and a
question whose first answer is lost."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.sdk import DAG, Context
from airflow.sdk.exceptions import AirflowException
from rtolap.airflow.operators.window_approval import WindowApprovalOperator
from rtolap.airflow.sensors.cubes import WindowCompleteSensor

WINDOW = {"application": "{{ params.application }}", "window_end": "{{ params.window_end }}"}
SHORT = {"poke_interval": 0.5, "timeout": 6}

with DAG(
    dag_id="it_windows",
    schedule=None,
    start_date=pendulum.datetime(2024, 1, 1, tz="UTC"),
    catchup=False,
    default_args={"retries": 3, "retry_delay": timedelta(seconds=1)},  # see docs/airflow.md
    params={"application": "", "window_end": ""},
):
    WindowCompleteSensor(task_id="patient", poke_interval=0.5, timeout=300, **WINDOW)
    WindowCompleteSensor(task_id="in_vain", **WINDOW, **SHORT)
    WindowCompleteSensor(task_id="skipped", soft_fail=True, **WINDOW, **SHORT)


class LosesFirstAnswer(WindowApprovalOperator):
    """As where Airflow takes the late end of the execution that asked for that of the one with the answer."""

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        if context["ti"].try_number == 1:
            raise AirflowException("this try is lost, and the answer with it")
        return super().execute_complete(context, event)


with DAG(
    dag_id="it_lost_answer",
    schedule=None,
    start_date=pendulum.datetime(2024, 1, 1, tz="UTC"),
    catchup=False,
    params={"application": "", "window_end": ""},
):
    LosesFirstAnswer(task_id="ask", retries=3, retry_delay=timedelta(seconds=1), poll_s=0.5, **WINDOW)
