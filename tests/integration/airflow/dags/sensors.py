"""Sensors that wait for what a test is going to do, and for what never comes."""

from __future__ import annotations

from datetime import timedelta

import pendulum
from airflow.sdk import DAG
from rtolap.airflow.sensors.cubes import LowWatermarkSensor, RemotePersistedSensor

CUBE, DAY = "{{ params.cube }}", "{{ params.day }}"
NEVER = "2100-01-01"
SHORT = {"poke_interval": 0.5, "timeout": 6}
LONG = {"poke_interval": 0.5, "timeout": 120}

with DAG(
    dag_id="it_sensors",
    schedule=None,
    start_date=pendulum.datetime(2024, 1, 1, tz="UTC"),
    catchup=False,
    default_args={"retries": 3, "retry_delay": timedelta(seconds=1)},  # see docs/airflow.md
    params={"cube": "", "day": ""},
):
    RemotePersistedSensor(task_id="any_segment", cube=CUBE, **LONG)
    LowWatermarkSensor(task_id="day_is_complete", cube=CUBE, at_least=DAY, **LONG)
    RemotePersistedSensor(task_id="no_segment", cube=CUBE, segment="20990101000000_20990102000000", **SHORT)
    LowWatermarkSensor(task_id="never_complete", cube=CUBE, at_least=NEVER, **SHORT)
    LowWatermarkSensor(task_id="skipped", cube=CUBE, at_least=NEVER, soft_fail=True, **SHORT)
