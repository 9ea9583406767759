"""A sensor that waits for what was written to HBase, and a DAG that is told of who has caught up."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pendulum
from airflow.sdk import DAG, task
from rtolap.airflow.assets import SUBSCRIPTION_CAUGHT_UP
from rtolap.airflow.sensors.replication import ReplicationWaitSensor

START = pendulum.datetime(2024, 1, 1, tz="UTC")

with DAG(
    dag_id="it_replication",
    schedule=None,
    start_date=START,
    catchup=False,
    default_args={"retries": 3, "retry_delay": timedelta(seconds=1)},  # see docs/airflow.md
    params={"peer": ""},
    render_template_as_native_obj=True,
):
    ReplicationWaitSensor(task_id="written", peer="{{ params.peer }}", timeout=120, poke_interval=0.5)

with DAG(
    dag_id="it_caught_up",
    schedule=[SUBSCRIPTION_CAUGHT_UP],
    start_date=START,
    catchup=False,
):

    @task
    def caught_up(triggering_asset_events: Any = None) -> list[dict[str, Any]]:
        return [event.extra["payload"] for event in triggering_asset_events[SUBSCRIPTION_CAUGHT_UP]]

    caught_up()
