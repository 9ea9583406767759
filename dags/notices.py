"""Tells people, every five minutes, of windows that are overdue and of records that were refused, each once.

By the notifiers of the Variable `rtolap_notifiers`. Windows that hold a cube's segments for longer than the
Variable `rtolap_watermark_overdue_after` allows; refused records of tables and loaders, and events that
captures have set apart. See docs/operations/notices.md.
"""

from __future__ import annotations

from datetime import timedelta

import pendulum
from airflow.sdk import DAG
from rtolap.airflow.notify import Notify
from rtolap.airflow.operators.notices import TellDeadLettersOperator, TellOverdueWindowsOperator
from rtolap.airflow.overdue import OVERDUE_AFTER, OVERDUE_AFTER_VARIABLE

with DAG(
    dag_id="rtolap_notices",
    schedule=timedelta(minutes=5),
    start_date=pendulum.datetime(2024, 1, 1, tz="UTC"),
    max_active_runs=1,
    catchup=False,
    default_args={
        "on_failure_callback": Notify(),
        "retries": 2,
        "retry_delay": timedelta(seconds=20),
    },
    tags=["rtolap"],
    doc_md=__doc__,
):
    TellOverdueWindowsOperator(
        task_id="overdue_windows",
        overdue_after=f"{{{{ var.value.get('{OVERDUE_AFTER_VARIABLE}', '{OVERDUE_AFTER}') }}}}",
    )
    TellDeadLettersOperator(task_id="dead_letters")
