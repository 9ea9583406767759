"""Creates every subscription of include/sep that is not there yet, and drops those that `drop` names.

By hand. A subscription whose file has changed is refused: drop it and create it again. What was not delivered
of a dropped one never is.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.sdk import DAG, Param, task
from rtolap.airflow.declared import defined_subscriptions
from rtolap.airflow.notify import Notify
from rtolap.airflow.operators.subscriptions import CreateSubscriptionOperator, DropSubscriptionOperator
from rtolap.base.settings import Settings

with DAG(
    dag_id="rtolap_subscription_definitions",
    schedule=None,
    start_date=pendulum.datetime(2024, 1, 1, tz="UTC"),
    max_active_runs=1,
    catchup=False,
    default_args={"on_failure_callback": Notify(), "retries": 3, "retry_delay": timedelta(minutes=1)},
    params={
        "drop": Param([], type="array", items={"type": "string"}, description="Names; they are not created.")
    },
    tags=["rtolap"],
    doc_md=__doc__,
):

    @task
    def dropped(params: Any = None) -> list[str]:
        return list(params["drop"])

    @task
    def defined(params: Any = None) -> list[str]:
        return sorted(set(defined_subscriptions(Settings().include_dir)) - set(params["drop"]))

    drop = DropSubscriptionOperator.partial(task_id="drop").expand(subscription=dropped())
    create = CreateSubscriptionOperator.partial(task_id="create", trigger_rule="none_failed").expand(
        subscription=defined()
    )
    drop >> create
