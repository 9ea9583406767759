"""The routes of the Kafka fleet: a cluster with its plan and its slow brokers, and the disks of one plan."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Annotated, cast

from fastapi import APIRouter, Path, Query, Response

from rtolap.airflow.hooks.on_demand import fleet_hooks, open_fleet
from rtolap.airflow.page.answers import ANSWER_S_MAX, Asked, ask_all, json_answer
from rtolap.airflow.page.fleet import fleet_of, planned_disks
from rtolap.base.clock import SystemClock
from rtolap.base.errors import RtolapError
from rtolap.model.table import DEFAULT_KAFKA_CLUSTER

if TYPE_CHECKING:
    from rtolap.airflow.hooks.fleet import SlowBrokers
    from rtolap.fleet.operations.look import FleetLook
    from rtolap.fleet.operations.slow_watch import SlowLook

router = APIRouter()

Cluster = Annotated[str, Query(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Digest = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$")]

_clock = SystemClock()


@router.get("/fleet")
def fleet(cluster: Cluster = DEFAULT_KAFKA_CLUSTER) -> Response:
    """Answer brokers, disks and the plan of a cluster, and which brokers of this host's sources are slow."""
    hook = open_fleet(cluster)
    asked = ask_all({"fleet": hook.look, "slow": slow_brokers().look}, ANSWER_S_MAX)
    answer = fleet_of(
        cluster,
        _clusters(),
        cast("Asked[FleetLook]", asked["fleet"]),
        cast("Asked[SlowLook | None]", asked["slow"]),
        now_ms=_clock.now_ms(),
    )
    return json_answer(answer)


@router.get("/fleet/plans/{digest}")
def plan(digest: Digest) -> Response:
    """Answer how full disks are before and after a plan that a DAG has made."""
    return json_answer(planned_disks(digest, fleet_hooks().planned(digest)))


def _clusters() -> tuple[str, ...]:
    """Return the clusters of this host; none where their file is wrong, which the look at one says."""
    try:
        known: tuple[str, ...] = fleet_hooks().known_clusters()
    except RtolapError:
        return ()
    return known


@cache
def slow_brokers() -> SlowBrokers:
    """Return the one watch of this process."""
    watch: SlowBrokers = fleet_hooks().SlowBrokers()
    return watch
