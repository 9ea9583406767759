"""Applies every cube's retention policy, once a day."""

from __future__ import annotations

from datetime import timedelta

import pendulum
from airflow.sdk import DAG, task
from rtolap.airflow.hook import RtolapHook
from rtolap.airflow.operators import RetentionOperator

with DAG(
    dag_id="rtolap_retention",
    schedule="@daily",
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

    RetentionOperator.partial(task_id="retention").expand(cube=cubes())
