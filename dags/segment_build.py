"""Builds and promotes the segments that are REMOTE_PERSISTED.

The asset event only says that the queue is not empty; the queue itself, kept by the coordinator, says what
is to do, and one run drains it. Versions that it makes READY are events of the assets of their cubes. Safe to
clear, to retry, to mark failed and to run twice.
"""

from __future__ import annotations

from datetime import timedelta

import pendulum
from airflow.sdk import DAG, task
from rtolap.airflow.assets import REMOTE_PERSISTED
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.notify import Notify
from rtolap.airflow.operators.build import SparkBuildOperator
from rtolap.airflow.overdue import POLICY_VARIABLE
from rtolap.airflow.ready_assets import READY_SEGMENTS

with DAG(
    dag_id="rtolap_segment_build",
    schedule=[REMOTE_PERSISTED],
    start_date=pendulum.datetime(2024, 1, 1, tz="UTC"),
    max_active_runs=1,
    catchup=False,
    default_args={"on_failure_callback": Notify()},
    tags=["rtolap"],
    doc_md=__doc__,
):

    @task(retries=5, retry_delay=timedelta(seconds=5))
    def queued_cubes() -> list[str]:
        with RtolapHook().coordinator() as coordinator:
            return sorted({entry.cube for entry in coordinator.queue().entries})

    SparkBuildOperator.partial(
        task_id="build",
        map_index_template="{{ task.cube }}",
        outlets=[READY_SEGMENTS],
        retries=3,
        retry_delay=timedelta(seconds=5),
        retry_exponential_backoff=True,
        incomplete_builds=f"{{{{ var.value.get('{POLICY_VARIABLE}', 'build') }}}}",
        max_active_tis_per_dag=2,  # Spark sessions at a time, whatever the number of cubes
    ).expand(cube=queued_cubes())
