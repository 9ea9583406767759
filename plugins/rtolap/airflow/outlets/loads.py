"""Loaded tables as assets: one asset a table, an event for each wait for its loader that has succeeded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias, Context

from rtolap.airflow.outlets.recorded import announce_once

LOADED_TABLES = AssetAlias(name="rtolap_loaded_tables")


def loaded_table(database: str, table: str) -> Asset:
    """Return the asset of a loaded table, for schedules of other DAGs."""
    path = f"{quote(database, safe='')}/{quote(table, safe='')}"
    return Asset(name=f"rtolap_loaded_{database}.{table}", uri=f"x-rtolap://tables/{path}/loaded")


def announce_load(context: Context, result: Mapping[str, Any]) -> None:
    """Announce the result of a `LoadedSensor`."""
    told = {
        "database": result["database"],
        "table": result["table"],
        "loader": result["loader"],
        "topic": result["topic"],
        "version": dict(result["loaded"]),
        "rows": result["rows"],
    }
    asset = loaded_table(told["database"], told["table"])
    announce_once(context, LOADED_TABLES, [(asset, told)], identity=("loader", "version"))
