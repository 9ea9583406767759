"""Drops, for ever, the segments of a cube that end at or below an instant. Started by hand."""

from __future__ import annotations

import pendulum
from airflow.sdk import DAG, Param
from rtolap.airflow.notify import Notify
from rtolap.airflow.operators.coordinator import PurgeOperator

with DAG(
    dag_id="rtolap_purge",
    schedule=None,
    start_date=pendulum.datetime(2024, 1, 1, tz="UTC"),
    catchup=False,
    params={
        "cube": Param(type="string", minLength=1, description="Name of the cube."),
        "before": Param(
            type="string", format="date-time", description="Segments ending by then are dropped."
        ),
    },
    default_args={"on_failure_callback": Notify()},
    tags=["rtolap"],
    doc_md=__doc__,
):
    PurgeOperator(task_id="purge", cube="{{ params.cube }}", before="{{ params.before }}", retries=2)
