"""Sensors of a window: one that waits for what a test is going to do, and two that wait in vain."""

from __future__ import annotations

from datetime import timedelta

import pendulum
from airflow.sdk import DAG
from rtolap.airflow.sensors import WindowCompleteSensor

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
