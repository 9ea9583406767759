"""The upkeep of every cube from time to time: one DAG each, mapped over the cubes."""

from __future__ import annotations

from datetime import timedelta

import pendulum
from airflow.sdk import DAG, task
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.notify import Notify
from rtolap.airflow.operators.coordinator import CleanupOperator, RetentionOperator

UPKEEP = (
    ("retention", "@daily", RetentionOperator, "Purges what each cube's retention policy says is too old."),
    ("cleanup", "@hourly", CleanupOperator, "Deletes from the object store what no segment refers to."),
)

for name, schedule, operator, purpose in UPKEEP:
    with DAG(
        dag_id=f"rtolap_{name}",
        schedule=schedule,
        start_date=pendulum.datetime(2024, 1, 1, tz="UTC"),
        max_active_runs=1,
        catchup=False,
        default_args={"on_failure_callback": Notify(), "retries": 3, "retry_delay": timedelta(minutes=1)},
        tags=["rtolap"],
        doc_md=purpose,
    ):

        @task
        def cubes() -> list[str]:
            return RtolapHook().cube_names()

        operator.partial(task_id=name, map_index_template="{{ task.cube }}").expand(cube=cubes())
