"""Queues one segment to be built again, and waits until it is READY. Started by hand.

    airflow dags trigger rtolap_requeue --conf '{"cube": "flights",
        "segment": "20130101000000_20130102000000"}'

For a segment whose build was refused: the next build starts from its staged parts, of which receivers upload
again what is lost or damaged. `rtolap_segment_build`, which has to be unpaused, builds it.
"""

from __future__ import annotations

from datetime import timedelta

import pendulum
from airflow.sdk import DAG, Param
from rtolap.airflow.notify import Notify
from rtolap.airflow.operators.coordinator import RequeueSegmentOperator
from rtolap.airflow.sensors.cubes import SegmentsReadySensor

with DAG(
    dag_id="rtolap_requeue",
    schedule=None,
    start_date=pendulum.datetime(2024, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=16,
    default_args={"on_failure_callback": Notify(), "retries": 3, "retry_delay": timedelta(seconds=20)},
    params={
        "cube": Param(type="string", minLength=1, description="Name of the cube."),
        "segment": Param(type="string", minLength=1, description="Name of the segment."),
    },
    tags=["rtolap"],
    doc_md=__doc__,
):
    requeue = RequeueSegmentOperator(
        task_id="requeue", cube="{{ params.cube }}", segment="{{ params.segment }}"
    )
    SegmentsReadySensor(
        task_id="ready",
        cube="{{ params.cube }}",
        segments=["{{ params.segment }}"],
        timeout=timedelta(days=7).total_seconds(),
        retries=100,
    ).set_upstream(requeue)
