"""Asks a person about windows that wait for their events for too long.

`rtolap_watermark_gate` looks every five minutes for windows that hold a cube's segments for longer than the
its deadline allows, and starts one run of `rtolap_window_approval` for each, once. There a person says
Approve or Reject under "Required actions": see docs/airflow.md. Nobody's silence lets anything go.

For a window of any other application, or sooner, start `rtolap_window_approval` by hand.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, Param, Variable, task
from rtolap.airflow.hooks.rtolap import RtolapHook
from rtolap.airflow.notify import Notify
from rtolap.airflow.operators.window_approval import ApproveWindowOperator, WindowApprovalOperator
from rtolap.airflow.overdue import (
    OVERDUE_AFTER,
    OVERDUE_AFTER_VARIABLE,
    POLICY_VARIABLE,
    windows_to_ask_about,
)
from rtolap.airflow.sensors.cubes import WindowCompleteSensor

START = pendulum.datetime(2024, 1, 1, tz="UTC")
APPROVAL = "rtolap_window_approval"
APPLICATION = "{{ params.application }}"
WINDOW_END = "{{ params.window_end }}"
LATENESS_MS = "{{ params.lateness_ms }}"

with DAG(
    dag_id="rtolap_watermark_gate",
    schedule=timedelta(minutes=5),
    start_date=START,
    max_active_runs=1,
    catchup=False,
    params={
        "overdue_after": Param(
            None,
            type=["string", "null"],
            description=f"Windows that ended so long ago, as 30m; else Variable {OVERDUE_AFTER_VARIABLE}.",
        ),
        "windows_max": Param(12, type="integer", minimum=1, description="Of each application, the oldest."),
    },
    default_args={"on_failure_callback": Notify()},
    tags=["rtolap"],
    doc_md=__doc__,
):

    @task(retries=2, retry_delay=timedelta(seconds=10))
    def overdue(params: Any = None) -> list[dict[str, Any]]:
        overdue_after = params["overdue_after"] or Variable.get(OVERDUE_AFTER_VARIABLE, default=OVERDUE_AFTER)
        policy = Variable.get(POLICY_VARIABLE, default="build")
        with RtolapHook().coordinator() as coordinator:
            windows = windows_to_ask_about(coordinator, overdue_after, params["windows_max"], policy)
        return [{"trigger_run_id": window.run_id, "conf": window.conf()} for window in windows]

    TriggerDagRunOperator.partial(
        task_id="ask_once",
        trigger_dag_id=APPROVAL,
        logical_date=None,
        skip_when_already_exists=True,
    ).expand_kwargs(overdue())

with DAG(
    dag_id=APPROVAL,
    schedule=None,
    start_date=START,
    max_active_runs=100,
    catchup=False,
    params={
        "application": Param(type="string", minLength=1, description="Name of the application."),
        "window_end": Param(type="string", format="date-time", description="End of the window."),
        "lateness_ms": Param(0, type="integer", minimum=0, description="Allowed lateness of the cube."),
    },
    default_args={"on_failure_callback": Notify()},
    tags=["rtolap"],
    doc_md=__doc__,
):
    ask = WindowApprovalOperator(
        notifiers=Notify(),
        task_id="ask",
        application=APPLICATION,
        window_end=WINDOW_END,
        lateness_ms=LATENESS_MS,
        retries=3,
        retry_delay=timedelta(seconds=10),
    )
    let_go = ApproveWindowOperator(
        task_id="let_go",
        application=APPLICATION,
        window_end=WINDOW_END,
        answer=ask.output,
        retries=10,
        retry_delay=timedelta(seconds=30),
    )
    may_close = WindowCompleteSensor(
        task_id="may_close",
        application=APPLICATION,
        window_end=WINDOW_END,
        lateness_ms=LATENESS_MS,
        trigger_rule="none_failed",  # after Reject too: it waits for the events
        timeout=timedelta(days=30).total_seconds(),
        poke_interval=10,
        retries=100,
        retry_delay=timedelta(seconds=10),
    )
    ask >> let_go >> may_close
