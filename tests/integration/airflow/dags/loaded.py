"""Sensors of a loader, and a DAG that is started by a partition that is complete."""

from __future__ import annotations

from typing import Any

import pendulum
from airflow.sdk import DAG, task
from rtolap.airflow.assets import PARTITION_COMPLETE
from rtolap.airflow.loaded_sensor import LoadedSensor

START = pendulum.datetime(2024, 1, 1, tz="UTC")

with DAG(
    dag_id="it_loaded",
    schedule=None,
    start_date=START,
    catchup=False,
    params={"loader": "", "offsets": {}, "until": ""},
    render_template_as_native_obj=True,
):
    common = {"loader": "{{ params.loader }}", "poke_interval": 0.5}
    LoadedSensor(task_id="offsets", offsets="{{ params.offsets }}", timeout=120, **common)
    LoadedSensor(task_id="instant", until="{{ params.until }}", timeout=120, **common)
    LoadedSensor(task_id="never", offsets={0: 1_000_000}, timeout=3, **common)

with DAG(
    dag_id="it_partition",
    schedule=[PARTITION_COMPLETE],
    start_date=START,
    catchup=False,
):

    @task
    def told(triggering_asset_events: Any = None) -> list[dict[str, Any]]:
        return [event.extra for events in triggering_asset_events.values() for event in events if event.extra]

    told()
