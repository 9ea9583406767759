"""Changes a running cube to what its file declares, once a person has approved the plan. Started by hand.

    airflow dags trigger rtolap_alter_cube --conf '{"cube": "flights", "file": "flights.yaml"}'

The plan is shown in Airflow's own form: each setting with its value before and after and what follows, new
and gone columns, and segments that a shorter retention drops for good. Dimensions, measures and the window
change by a revision of the cube, from a moment on. What a running cube cannot change fails the run by name.
"""

from __future__ import annotations

from datetime import timedelta

import pendulum
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param
from rtolap.airflow.notify import Notify
from rtolap.airflow.operators.alterations import AlterCubeOperator, PlanAlterationOperator

CUBE = "{{ params.cube }}"

with DAG(
    dag_id="rtolap_alter_cube",
    schedule=None,
    start_date=pendulum.datetime(2024, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=4,
    default_args={"on_failure_callback": Notify(), "retries": 3, "retry_delay": timedelta(minutes=1)},
    params={
        "cube": Param(type="string", minLength=1, description="Name of the cube."),
        "file": Param(type="string", minLength=1, description="YAML file or folder below include."),
        "renamed": Param(
            {},
            type="object",
            additionalProperties={"type": "string"},
            description="New column: the column that it goes on with.",
        ),
        "older": Param(
            "null",
            enum=["null", "refuse", "fill"],
            description="Columns that older events do not have: NULL, refused, or filled in.",
        ),
    },
    tags=["rtolap"],
    doc_md=__doc__,
):
    plan = PlanAlterationOperator(
        task_id="plan",
        cube=CUBE,
        file="{{ params.file }}",
        renamed="{{ params.renamed | tojson }}",
        older="{{ params.older }}",
    )
    approve = ApprovalOperator(
        notifiers=Notify(),
        task_id="approve",
        subject="Change a running cube?",
        body="{{ ti.xcom_pull(task_ids='plan')['text'] }}",
    )
    alter = AlterCubeOperator(task_id="alter", cube=CUBE, planned=plan.output, answer=approve.output)
    plan >> approve >> alter
