"""Waits for READY segments of any cube, as a DAG of somebody else does."""

from __future__ import annotations

from typing import Any

import pendulum
from airflow.sdk import DAG, task
from rtolap.airflow.ready_assets import READY_SEGMENTS

with DAG(
    dag_id="it_ready_report",
    schedule=[READY_SEGMENTS],
    start_date=pendulum.datetime(2024, 1, 1, tz="UTC"),
    catchup=False,
):

    @task
    def report(triggering_asset_events: Any = None) -> list[dict[str, Any]]:
        return [event.extra for events in triggering_asset_events.values() for event in events]

    report()
