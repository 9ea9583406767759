"""Runs the consumers of the declared subscriptions to HBase, one never-ending task each.

Unpausing the DAG starts them; pausing changes nothing; marking a task failed stops its consumer; clearing a
task restarts it, and no event is delivered twice. While none runs, HBase keeps what is written. See
docs/airflow.md.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.sdk import DAG, Variable, task
from rtolap.airflow.operators.services import SubscriptionOperator
from rtolap.airflow.subscriptions import SUBSCRIPTIONS, declared_subscriptions
from rtolap.base.settings import Settings

# For about a day, ever more slowly, before a human is needed.
RETRIES = {
    "retries": 100,
    "retry_delay": timedelta(seconds=20),
    "retry_exponential_backoff": True,
    "max_retry_delay": timedelta(minutes=15),
}

with DAG(
    dag_id="rtolap_subscriptions",
    schedule="@continuous",
    start_date=pendulum.datetime(2024, 1, 1, tz="UTC"),
    max_active_runs=1,
    catchup=False,
    default_args=RETRIES,  # of `declared` too: without an entry the DAG would run again and again
    tags=["rtolap"],
    doc_md=__doc__,
):

    @task
    def declared() -> list[dict[str, Any]]:
        variable = Variable.get(SUBSCRIPTIONS.variable, default=None, deserialize_json=True)
        return declared_subscriptions(variable, Settings().include_dir)

    SubscriptionOperator.partial(task_id="consumer").expand_kwargs(declared())
