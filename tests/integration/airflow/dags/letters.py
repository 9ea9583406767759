"""Tells people of dead letters as they come, of the topic that a test fills."""

from __future__ import annotations

import pendulum
from airflow.sdk import DAG
from rtolap.airflow.letter_assets import dead_letters
from rtolap.airflow.notify import Notify
from rtolap.airflow.operators.notices import TellDeadLettersOperator

TOPIC, CONNECTION = "it-letters.hits.rejects", "kafka_it_letters"

with DAG(
    dag_id="it_letters",
    schedule=[dead_letters(TOPIC, CONNECTION)],
    start_date=pendulum.datetime(2024, 1, 1, tz="UTC"),
    max_active_runs=1,
    catchup=False,
    default_args={"on_failure_callback": Notify()},
):
    TellDeadLettersOperator(task_id="tell", topics=[TOPIC], kafka_conn_id=CONNECTION)
