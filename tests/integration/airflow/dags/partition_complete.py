"""Runs when partitions of loaded tables are complete, and tells which."""

from __future__ import annotations

from typing import Any

import pendulum
from airflow.sdk import DAG, task
from rtolap.airflow.assets import PARTITION_COMPLETE

with DAG(
    dag_id="it_partition_complete",
    schedule=[PARTITION_COMPLETE],
    start_date=pendulum.datetime(2024, 1, 1, tz="UTC"),
    catchup=False,
):

    @task
    def partitions(triggering_asset_events: Any = None) -> list[dict[str, Any]]:
        return [event.extra["payload"] for event in triggering_asset_events[PARTITION_COMPLETE]]

    partitions()
