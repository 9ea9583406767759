"""DAGs of the integration tests: harmless commands where nothing but their process counts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.sdk import DAG
from rtolap.airflow.operators.process import ManagedProcessOperator

START = pendulum.datetime(2024, 1, 1, tz="UTC")
SLEEP = ["rtolap", "agent", "sleep", "--seconds"]


def one_task_dag(dag_id: str, **operator: Any) -> DAG:
    with DAG(dag_id=dag_id, schedule=None, start_date=START, catchup=False) as dag:
        ManagedProcessOperator(task_id="process", process_key=dag_id, poll_s=0.5, **operator)
    return dag


marked = one_task_dag("it_marked", argv=[*SLEEP, "3600"])
linked = one_task_dag("it_linked", argv=[*SLEEP, "3600"])
retried = one_task_dag(
    "it_retried",
    argv=[*SLEEP, "0", "--exit-code", "{{ 0 if ti.try_number > 1 else 3 }}"],
    one_shot=True,
    retries=1,
    retry_delay=timedelta(seconds=1),
)
adopted = one_task_dag("it_adopted", argv=[*SLEEP, "10"], one_shot=True)
