"""Waits for loaded tables and finished plans of any kind, as DAGs of somebody else do."""

from __future__ import annotations

from typing import Any

import pendulum
from airflow.sdk import DAG, task
from rtolap.airflow.outlets.loads import LOADED_TABLES
from rtolap.airflow.outlets.plans import FINISHED_PLANS

for dag_id, awaited in (("it_loaded_report", LOADED_TABLES), ("it_plans_report", FINISHED_PLANS)):
    with DAG(
        dag_id=dag_id,
        schedule=[awaited],
        start_date=pendulum.datetime(2024, 1, 1, tz="UTC"),
        catchup=False,
    ):

        @task
        def report(triggering_asset_events: Any = None) -> list[dict[str, Any]]:
            """Each event comes under its asset, and once more under the alias."""
            return [event.extra for events in triggering_asset_events.values() for event in events]

        report()
