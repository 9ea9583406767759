"""What a task finds in its context: a store that survives its executions, and the events of its outlets."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from airflow.sdk import Asset, AssetAlias
from airflow.sdk.execution_time.context import OutletEventAccessors


class Store(dict[str, Any]):
    def set(self, key: str, value: Any, *, retention: Any) -> None:
        self[key] = value


def task_context(**more: Any) -> Any:
    ti = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1, **more)
    run = SimpleNamespace(run_after=datetime(2026, 1, 1, tzinfo=UTC))
    return {
        "ti": ti,
        "dag_run": run,
        "task_state_store": Store(),
        "outlet_events": OutletEventAccessors(),
    }


def events_of(context: Mapping[str, Any], alias: AssetAlias) -> list[tuple[str, Any]]:
    """Return asset and extra data of each event that the task will send."""
    found = context["outlet_events"][alias].asset_alias_events
    return [(each.dest_asset_key.name, each.extra) for each in found]


class Recorded:
    """What Airflow has recorded of a task: the events of executions that succeeded.

    Stands in for `outlets.recorded.recorded`, which asks Airflow. `looks` counts the questions.
    """

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []
        self.looks = 0

    def __call__(self, context: Any, asset: Asset) -> list[Any]:
        self.looks += 1
        return [extra for name, extra in self.events if name == asset.name]

    def succeed(self, context: Any, alias: AssetAlias) -> None:
        """End the execution well: its events are recorded, and the next execution has none yet."""
        self.events += events_of(context, alias)
        self.lose(context)

    def lose(self, context: Any) -> None:
        """End the execution otherwise: nothing is recorded."""
        context["outlet_events"] = OutletEventAccessors()
