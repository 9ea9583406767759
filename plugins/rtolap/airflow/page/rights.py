"""Who may see the page, who may start which DAG, and who may answer its questions: Airflow says so.

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
    "rtolap_cube_switch",
    "rtolap_purge",
    "rtolap_move_partitions",
    "rtolap_requeue",
    "rtolap_window_approval",
    "rtolap_fleet_cancel",
    "rtolap_dead_letters",
)
ANSWERED_ON_THE_PAGE = (
    "rtolap_move_partitions",
    "rtolap_window_approval",
    "rtolap_fleet_balance",
    "rtolap_fleet_drain",
    "rtolap_fleet_rack_repair",
    "rtolap_fleet_repair",
    "rtolap_fleet_retire",
)

# A route's dependency: 401 without a signed-in user, 403 for one who may not read.
reader = requires_access_dag("GET", DagAccessEntity.TASK_LOGS, READ_AS)
asker = requires_access_dag("POST", DagAccessEntity.RUN, READ_AS)


def may_start(user: Any, dag_ids: Sequence[str] = STARTED_BY_THE_PAGE) -> tuple[str, ...]:
    """Return those of the DAGs that this user may start. Airflow checks it again when one is started."""
    return tuple(dag_id for dag_id in dag_ids if _may_run(user, dag_id))


def may_answer(user: Any, dag_ids: Sequence[str] = ANSWERED_ON_THE_PAGE) -> tuple[str, ...]:
    """Return those of the DAGs whose questions this user may answer. Airflow checks it again with each."""
    may = get_auth_manager().is_authorized_dag
    return tuple(
        dag_id
        for dag_id in dag_ids
        if may(
            method="PUT",
            access_entity=DagAccessEntity.HITL_DETAIL,
            details=DagDetails(id=dag_id),
            user=user,
        )
    )


def may_ask(user: Any) -> bool:
    """Return True if this user may ask statements. `asker` checks it again with each."""
    return _may_run(user, READ_AS)


def _may_run(user: Any, dag_id: str) -> bool:
    return get_auth_manager().is_authorized_dag(
        method="POST", access_entity=DagAccessEntity.RUN, details=DagDetails(id=dag_id), user=user
    )
