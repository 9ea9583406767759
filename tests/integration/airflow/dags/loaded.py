"""Sensors of a loader: two that wait for what a test is going to send, and one that waits in vain."""

from __future__ import annotations

from datetime import timedelta

import pendulum
from airflow.sdk import DAG
from rtolap.airflow.outlets.loads import LOADED_TABLES
from rtolap.airflow.sensors.loaded import LoadedSensor

START = pendulum.datetime(2024, 1, 1, tz="UTC")

with DAG(
    dag_id="it_loaded",
    schedule=None,
    start_date=START,
    catchup=False,
    default_args={"retries": 3, "retry_delay": timedelta(seconds=1)},  # see docs/airflow.md
    params={"loader": "", "offsets": {}, "until": ""},
    render_template_as_native_obj=True,
):
    common = {"loader": "{{ params.loader }}", "poke_interval": 0.5}
    LoadedSensor(
        task_id="offsets", offsets="{{ params.offsets }}", timeout=120, outlets=[LOADED_TABLES], **common
    )
    LoadedSensor(task_id="instant", until="{{ params.until }}", timeout=120, **common)
    LoadedSensor(task_id="never", offsets={0: 1_000_000}, timeout=3, **common)
