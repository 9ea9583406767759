"""Queues the READY segments of each day of a range to be built again.

    airflow backfill create --dag-id rtolap_backfill --from-date 2013-01-01 --to-date 2013-01-31

One run a day of the range; `rtolap_segment_build` then builds what was queued. Only runs of a backfill, and
those started by hand, do anything: the daily schedule exists so that a range has days.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.sdk import DAG, CronDataIntervalTimetable, Param, task
from airflow.sdk.exceptions import AirflowSkipException
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.operators.coordinator import RequeueOperator

with DAG(
    dag_id="rtolap_backfill",
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=pendulum.datetime(1970, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=16,
    default_args={"retries": 3, "retry_delay": timedelta(seconds=20)},
    params={"cube": Param(None, type=["string", "null"], description="One cube; none means all of them.")},
    tags=["rtolap"],
    doc_md=__doc__,
):

    @task
    def cubes(dag_run: Any = None, params: Any = None) -> list[str]:
        if dag_run.run_type not in ("backfill", "manual"):
            raise AirflowSkipException("a scheduled run queues nothing")
        if params["cube"]:
            return [params["cube"]]
        return RtolapHook().cube_names()

    RequeueOperator.partial(
        task_id="requeue",
        start="{{ data_interval_start.isoformat() }}",
        end="{{ data_interval_end.isoformat() }}",
    ).expand(cube=cubes())
