"""Asks a person, and tells people that it does."""

from __future__ import annotations

import pendulum
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG
from rtolap.airflow.notify import Notify

with DAG(
    dag_id="it_asks",
    schedule=None,
    start_date=pendulum.datetime(2024, 1, 1, tz="UTC"),
    catchup=False,
    params={"what": ""},
):
    ApprovalOperator(task_id="ask", subject="May it go on?", body="Of {{ params.what }}", notifiers=Notify())
