"""Checks the topic of a cube, and waits until its receivers have read it."""

from __future__ import annotations

from datetime import timedelta

import pendulum
from airflow.sdk import DAG
from rtolap.airflow.operators.topics import CheckTopicsOperator
from rtolap.airflow.sensors.lag import LagSensor

with DAG(
    dag_id="it_kafka",
    schedule=None,
    start_date=pendulum.datetime(2024, 1, 1, tz="UTC"),
    catchup=False,
    params={"cube": ""},
):
    check = CheckTopicsOperator(task_id="check", cubes=["{{ params.cube }}"])
    read = LagSensor(
        task_id="read",
        cube="{{ params.cube }}",
        timeout=120,
        poke_interval=0.5,
        retries=3,  # see docs/airflow.md
        retry_delay=timedelta(seconds=1),
    )
    check >> read
