"""Queues the READY segments of a range to be built again: of each day in a run of its own, or of all in one.

    airflow backfill create --dag-id rtolap_backfill --from-date 2013-01-01 --to-date 2013-01-31
    airflow dags trigger rtolap_backfill --conf '{"cube": "flights", "from": "2013-01-01T00:00:00Z",
        "to": "2013-02-01T00:00:00Z"}'

`rtolap_segment_build`, which has to be unpaused, builds what was queued. A run ends when the segments of its
range are READY again, and fails with the names and errors of those that are not.

Airflow keeps one run of a day, whatever its cube: a second backfill of the same days leaves out those that
have a run, unless it is created with `--reprocess-behavior completed`. Runs that name their range have no
day, and may be as many as are wanted. Runs of the daily schedule do nothing: it is there so that a range has
days.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.sdk import DAG, CronDataIntervalTimetable, Param, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.notify import Notify
from rtolap.airflow.operators.coordinator import RequeueOperator
from rtolap.airflow.sensors.cubes import SegmentsReadySensor

with DAG(
    dag_id="rtolap_backfill",
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=pendulum.datetime(1970, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=16,
    default_args={"on_failure_callback": Notify(), "retries": 3, "retry_delay": timedelta(seconds=20)},
    params={
        "cube": Param(None, type=["string", "null"], description="One cube; none means all of them."),
        "from": Param(
            None, type=["string", "null"], format="date-time", description="Begin; none: of the run's day."
        ),
        "to": Param(
            None, type=["string", "null"], format="date-time", description="End; none: of the run's day."
        ),
    },
    tags=["rtolap"],
    doc_md=__doc__,
):

    @task
    def cubes(dag_run: Any = None, params: Any = None) -> list[str]:
        if dag_run.run_type not in ("backfill", "manual"):
            raise AirflowSkipException("a scheduled run queues nothing")
        named = [name for name in ("from", "to") if params[name]]
        if len(named) == 1 or (not named and dag_run.logical_date is None):
            raise AirflowFailException(
                f"expected `from` and `to`, or a run of a day; found {named or 'neither'}: start it with both"
            )
        if params["cube"]:
            return [params["cube"]]
        return RtolapHook().cube_names()

    requeue = RequeueOperator.partial(
        task_id="requeue",
        map_index_template="{{ task.cube }}",
        start="{{ params['from'] or data_interval_start.isoformat() }}",
        end="{{ params['to'] or data_interval_end.isoformat() }}",
    ).expand(cube=cubes())
    SegmentsReadySensor.partial(
        task_id="ready",
        map_index_template="{{ task.cube }}",
        timeout=timedelta(days=7).total_seconds(),
        retries=100,
    ).expand_kwargs(requeue.output)
