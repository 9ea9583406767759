"""Moves partitions of a cube between receivers' replica sets, so that nobody notices. Started by hand.

    airflow dags trigger rtolap_move_partitions --conf '{"cube": "flights", "by": "load"}'

The plan is shown in Airflow's own form, with what is read again and the loads before and after. Once somebody
approves it, the new owners warm up beside the old ones, which answer until the new ones can. When the new
assignment stands, the run asks whether to move back: Approve does so in the same way, Reject keeps it and
ends the run. If the assignment has changed since the plan, nothing is done.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param
from rtolap.airflow.notify import Notify
from rtolap.airflow.operators.moves import MoveBackOperator, MovePartitionsOperator, PlanMoveOperator
from rtolap.airflow.sensors.moves import MoveStandsSensor

CUBE = "{{ params.cube }}"
# A look is free, and a move takes as long as the new owners read.
LOOKS: dict[str, Any] = {"cube": CUBE, "timeout": timedelta(days=7).total_seconds(), "retries": 100}

with DAG(
    dag_id="rtolap_move_partitions",
    schedule=None,
    start_date=pendulum.datetime(2024, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=4,
    default_args={"on_failure_callback": Notify(), "retries": 3, "retry_delay": timedelta(minutes=1)},
    params={
        "cube": Param(type="string", minLength=1, description="Name of the cube."),
        "by": Param("load", enum=["load", "count"], description="Level the load, or the number."),
        "over": Param(
            None,
            type=["array", "null"],
            items={"type": "string"},
            description="Replica sets to spread the partitions over; none lets the plan choose.",
        ),
        "at_once": Param(
            False, type="boolean", description="Change the assignment at once: queries wait meanwhile."
        ),
    },
    tags=["rtolap"],
    doc_md=__doc__,
):
    plan = PlanMoveOperator(
        task_id="plan", cube=CUBE, by="{{ params.by }}", over="{{ params.over | tojson }}"
    )
    approve = ApprovalOperator(
        notifiers=Notify(),
        task_id="approve",
        subject="Move partitions of {{ params.cube }}?",
        body="{{ ti.xcom_pull(task_ids='plan')['text'] }}",
    )
    how: dict[str, Any] = {"cube": CUBE, "planned": plan.output, "at_once": "{{ params.at_once }}"}
    move = MovePartitionsOperator(task_id="move", answer=approve.output, **how)
    stands = MoveStandsSensor(task_id="stands", epoch=move.output, **LOOKS)
    approve_back = ApprovalOperator(
        notifiers=Notify(),
        task_id="approve_back",
        subject="Move the partitions of {{ params.cube }} back?",
        body="The new assignment stands. Approve moves back, Reject keeps it.\n\n"
        "{{ ti.xcom_pull(task_ids='plan')['text'] }}",
    )
    back = MoveBackOperator(task_id="back", epoch=stands.output, answer=approve_back.output, **how)
    stands_again = MoveStandsSensor(task_id="stands_again", epoch=back.output, **LOOKS)
    plan >> approve >> move >> stands >> approve_back >> back >> stands_again
