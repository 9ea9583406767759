"""Finished plans of Kafka's brokers as assets: one a cluster, an event for each plan that has ended well."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias, Context

from rtolap.airflow.outlets.recorded import announce_once

FINISHED_PLANS = AssetAlias(name="rtolap_finished_plans")


def finished_plans(cluster: str) -> Asset:
    """Return the asset of a Kafka cluster's finished plans, for schedules of other DAGs."""
    name = quote(cluster, safe="")
    return Asset(name=f"rtolap_finished_plans_{cluster}", uri=f"x-rtolap://kafka/{name}/finished_plans")


def announce_plan(context: Context, cluster: str, finished: dict[str, Any]) -> None:
    """Announce a plan as `OpenedFleet.finished` describes it."""
    told = {"cluster": cluster, **finished}
    announce_once(context, FINISHED_PLANS, [(finished_plans(cluster), told)], identity=("plan",))
