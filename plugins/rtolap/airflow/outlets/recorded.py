"""Events of assets that a task sends as it succeeds: each once, over failed tries, lost workers and clears.

    execution 1   announced ──▶ lost, or failed       Airflow has recorded nothing, so all is sent again
    execution 2   announced ──▶ succeeded             Airflow records the events with the success
    execution 3   cleared: what Airflow has recorded of this task is left out

Airflow records the events of a task in the same commit as its success, so what is recorded was sent. It is
asked only where an earlier execution came so far, which a note in the task's state store says.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from airflow.sdk import NEVER_EXPIRE, Asset, AssetAlias, Context  # type: ignore[attr-defined,unused-ignore]
from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time.context import InletEventsAccessors

log = logging.getLogger(__name__)

_KEY = "announced"


def announce_once(
    context: Context,
    alias: AssetAlias,
    events: Iterable[tuple[Asset, Mapping[str, Any]]],
    identity: Sequence[str],
) -> list[dict[str, Any]]:
    """Add the events that this task has not sent in an earlier execution; return what they hold.

    Events of an asset are the same where the values called `identity` are equal.
    """
    store = context["task_state_store"]
    again = store.get(_KEY) is True
    store.set(_KEY, True, retention=NEVER_EXPIRE)
    known: dict[str, list[Mapping[str, Any]]] = {}
    added: list[dict[str, Any]] = []
    accessor = context["outlet_events"][alias]
    for asset, extra in events:
        if asset.name not in known:
            known[asset.name] = recorded(context, asset) if again else []
        identified = [extra[name] for name in identity]
        if identified in [[other.get(name) for name in identity] for other in known[asset.name]]:
            log.info("%s has this event already: %s", asset.name, extra)
            continue
        accessor.add(asset, extra=dict(extra))
        added.append(dict(extra))
    return added


def recorded(context: Context, asset: Asset) -> list[Mapping[str, Any]]:
    """Return what the events hold that Airflow has recorded of this task and asset.

    Where Airflow cannot tell (it answers with an error while a run that an event has started is queued), none
    is known, and an event may come twice rather than never.
    """
    ti = context["ti"]
    begun = context["dag_run"].run_after.isoformat()
    try:
        found = list(InletEventsAccessors([asset])[asset].after(begun))
    except AirflowRuntimeError:
        log.warning(
            "Airflow does not say what %s has been told, so all is told again", asset.name, exc_info=True
        )
        return []
    source = (ti.dag_id, ti.run_id, ti.task_id, -1 if ti.map_index is None else ti.map_index)
    return [
        event.extra or {}
        for event in found
        if (event.source_dag_id, event.source_run_id, event.source_task_id, event.source_map_index) == source
    ]
