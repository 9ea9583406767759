"""Who may see the page, and who may start which DAG: Airflow says so.

The page shows what tasks of the build DAG show in their logs, of all cubes: who may read those may see it.
Who may start a run of that DAG may ask statements: they read the data, and take turns of the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import requires_access_dag

READ_AS = "rtolap_segment_build"
STARTED_BY_THE_PAGE = (
    "rtolap_backfill",
    "rtolap_purge",
    "rtolap_move_partitions",
    "rtolap_fleet_cancel",
    "rtolap_dead_letters",
)

# A route's dependency: 401 without a signed-in user, 403 for one who may not read.
reader = requires_access_dag("GET", DagAccessEntity.TASK_LOGS, READ_AS)
asker = requires_access_dag("POST", DagAccessEntity.RUN, READ_AS)


def may_start(user: Any, dag_ids: Sequence[str] = STARTED_BY_THE_PAGE) -> tuple[str, ...]:
    """Return those of the DAGs that this user may start. Airflow checks it again when one is started."""
    return tuple(dag_id for dag_id in dag_ids if _may_run(user, dag_id))


def may_ask(user: Any) -> bool:
    """Return True if this user may ask statements. `asker` checks it again with each."""
    return _may_run(user, READ_AS)


def _may_run(user: Any, dag_id: str) -> bool:
    return get_auth_manager().is_authorized_dag(
        method="POST", access_entity=DagAccessEntity.RUN, details=DagDetails(id=dag_id), user=user
    )
