"""Queues the READY segments of each day of a range to be built again.

    airflow backfill create --dag-id rtolap_backfill --from-date 2013-01-01 --to-date 2013-01-31

One run a day of the range; `rtolap_segment_build`, which has to be unpaused, builds what was queued. A run
ends when the segments of its day are READY again, and fails with the names and errors of those that are not.
Only runs of a backfill, and those started by hand, do anything: the daily schedule is there so that a range
has days.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.sdk import DAG, CronDataIntervalTimetable, Param, task
from airflow.sdk.exceptions import AirflowSkipException
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.operators.coordinator import RequeueOperator
from rtolap.airflow.sensors.cubes import SegmentsReadySensor

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

    requeue = RequeueOperator.partial(
        task_id="requeue",
        map_index_template="{{ task.cube }}",
        start="{{ data_interval_start.isoformat() }}",
        end="{{ data_interval_end.isoformat() }}",
    ).expand(cube=cubes())
    SegmentsReadySensor.partial(
        task_id="ready",
        map_index_template="{{ task.cube }}",
        timeout=timedelta(days=7).total_seconds(),
        retries=100,
    ).expand_kwargs(requeue.output)
