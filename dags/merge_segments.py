"""Merges small segments of history: hours to days, days to months, as each cube's definition says (`merge`).

Answers stay the same before, during and after. One run merges all that can be merged. Safe to clear, to
retry, to mark failed and to run twice: a merge is committed in one step, or has changed nothing.
"""

from __future__ import annotations

from datetime import timedelta

import pendulum
from airflow.sdk import DAG, task
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.notify import Notify
from rtolap.airflow.operators.merging import MergeSegmentsOperator

with DAG(
    dag_id="rtolap_merge_segments",
    schedule="20 * * * *",
    start_date=pendulum.datetime(2024, 1, 1, tz="UTC"),
    max_active_runs=1,
    catchup=False,
    default_args={"on_failure_callback": Notify()},
    tags=["rtolap"],
    doc_md=__doc__,
):

    @task(retries=5, retry_delay=timedelta(seconds=5))
    def merging_cubes() -> list[str]:
        with RtolapHook().coordinator() as coordinator:
            found = coordinator.cubes()
        return sorted(each.name for each in found if each.definition.get("merge", {}).get("to"))

    MergeSegmentsOperator.partial(
        task_id="merge",
        map_index_template="{{ task.cube }}",
        retries=3,
        retry_delay=timedelta(minutes=1),
        max_active_tis_per_dag=1,  # builds of fresh segments go first: one Spark session is enough here
    ).expand(cube=merging_cubes())
