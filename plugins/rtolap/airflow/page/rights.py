"""Who may see the page, who may start which DAG, and who may answer its questions: Airflow says so.

The page shows what tasks of the build DAG show in their logs, of all cubes: who may read those may see it.
Who may start a run of that DAG may ask statements: they read the data, and take turns of the cluster.
"""

from __future__ import annotations

from typing import Any, Final, Literal

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

_RUN: Final = ("POST", DagAccessEntity.RUN)
_ANSWER: Final = ("PUT", DagAccessEntity.HITL_DETAIL)

# A route's dependency: 401 without a signed-in user, 403 for one who may not read.
reader = requires_access_dag("GET", DagAccessEntity.TASK_LOGS, READ_AS)
asker = requires_access_dag(*_RUN, READ_AS)


def may_start(user: Any) -> tuple[str, ...]:
    """Return the DAGs of the page that this user may start. Airflow checks it again when one is started."""
    return tuple(dag_id for dag_id in STARTED_BY_THE_PAGE if _may(user, *_RUN, dag_id))


def may_answer(user: Any) -> tuple[str, ...]:
    """Return the DAGs whose questions this user may answer on the page. Airflow checks it again with each."""
    return tuple(dag_id for dag_id in ANSWERED_ON_THE_PAGE if _may(user, *_ANSWER, dag_id))


def may_ask(user: Any) -> bool:
    """Return True if this user may ask statements. `asker` checks it again with each."""
    return _may(user, *_RUN, READ_AS)


def _may(user: Any, method: Literal["POST", "PUT"], entity: DagAccessEntity, dag_id: str) -> bool:
    return get_auth_manager().is_authorized_dag(
        method=method, access_entity=entity, details=DagDetails(id=dag_id), user=user
    )
