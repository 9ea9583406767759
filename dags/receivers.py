"""Runs the declared receivers, one never-ending task each.

Unpausing the DAG starts them; pausing changes nothing; marking a task failed stops its receiver; clearing a
task restarts it. The processes outlive Airflow's own: see docs/airflow.md.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.sdk import DAG, Variable, task
from rtolap.airflow.operators.services import ReceiverOperator
from rtolap.airflow.operators.topics import CheckTopicsOperator
from rtolap.airflow.receivers import RECEIVERS
from rtolap.base.settings import Settings

# For about a day, ever more slowly, before a human is needed.
RETRIES = {
    "retries": 100,
    "retry_delay": timedelta(seconds=20),
    "retry_exponential_backoff": True,
    "max_retry_delay": timedelta(minutes=15),
}

with DAG(
    dag_id="rtolap_receivers",
    schedule="@continuous",
    start_date=pendulum.datetime(2024, 1, 1, tz="UTC"),
    max_active_runs=1,
    catchup=False,
    tags=["rtolap"],
    doc_md=__doc__,
):

    @task
    def declared() -> list[dict[str, Any]]:
        variable = Variable.get(RECEIVERS.variable, default=None, deserialize_json=True)
        return RECEIVERS.declared(variable, Settings().include_dir)

    # As `kafka_default` reaches them: a receiver without its topic would only wait.
    topics = CheckTopicsOperator(task_id="topics", **RETRIES)
    # After the agent has given up on a crashing receiver, too.
    topics >> ReceiverOperator.partial(task_id="receiver", **RETRIES).expand_kwargs(declared())
