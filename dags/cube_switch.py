"""Pauses a cube, resumes it, or turns it off or on. Started by hand.

    airflow dags trigger rtolap_cube_switch --conf '{"cube": "flights", "to": "pause", "reason": "repair"}'

While a cube is paused or off, its receivers read nothing; what they hold is answered and built. Who has
started the run, and the reason, stay with the cube: its page says them.
"""

from __future__ import annotations

from datetime import timedelta

import pendulum
from airflow.sdk import DAG, Param
from rtolap.airflow.notify import Notify
from rtolap.airflow.operators.coordinator import SwitchCubeOperator

with DAG(
    dag_id="rtolap_cube_switch",
    schedule=None,
    start_date=pendulum.datetime(2024, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,  # in the order in which people have asked
    default_args={"on_failure_callback": Notify(), "retries": 2, "retry_delay": timedelta(seconds=10)},
    params={
        "cube": Param(type="string", minLength=1, description="Name of the cube."),
        "to": Param(enum=["pause", "resume", "disable", "enable"], description="What is done."),
        "reason": Param("", type="string", description="Why; recorded with the cube."),
    },
    tags=["rtolap"],
    doc_md=__doc__,
):
    SwitchCubeOperator(
        task_id="switch", cube="{{ params.cube }}", to="{{ params.to }}", reason="{{ params.reason }}"
    )
