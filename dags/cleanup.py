"""Deletes what no segment refers to any more from the object store, every hour."""

from __future__ import annotations

from datetime import timedelta

import pendulum
from airflow.sdk import DAG, task
from rtolap.airflow.hook import RtolapHook
from rtolap.airflow.operators import CleanupOperator

with DAG(
    dag_id="rtolap_cleanup",
    schedule="@hourly",
    start_date=pendulum.datetime(2024, 1, 1, tz="UTC"),
    max_active_runs=1,
    catchup=False,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1)},
    tags=["rtolap"],
    doc_md=__doc__,
):

    @task
    def cubes() -> list[str]:
        with RtolapHook().coordinator() as coordinator:
            return [cube.name for cube in coordinator.cubes()]

    CleanupOperator.partial(task_id="cleanup").expand(cube=cubes())
